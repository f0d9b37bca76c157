# One image for every process of the engine: streams, writer, alerts, actuators, traces, topics, simulate, and the page.

# `embedded` for a head with its own store: docker build --build-arg EXTRAS=embedded --tag pacehound-head .
ARG EXTRAS=engine

FROM python:3.11-slim-bookworm AS wheels
ARG EXTRAS
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml setup.py constraints.txt README.md LICENSE ./
COPY pacehound pacehound
COPY collector collector
COPY streams streams
COPY storage storage
COPY alerts alerts
COPY actuators actuators
COPY simulator simulator
COPY web web
RUN python -m pip wheel --no-cache-dir --wheel-dir /wheels --constraint constraints.txt ".[$EXTRAS]"

FROM python:3.11-slim-bookworm
ARG EXTRAS
ENV PYTHONUNBUFFERED=1
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /nonexistent pacehound \
    && install --directory --owner=pacehound --group=pacehound --mode=0700 /var/lib/pacehound
# Mounted, not copied: the wheels take no room in the image.
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    python -m pip install --no-cache-dir --no-index --find-links /wheels "pacehound[$EXTRAS]"
USER 10001:10001
EXPOSE 9464
STOPSIGNAL SIGTERM
ENTRYPOINT ["pacehound"]
CMD ["--help"]
