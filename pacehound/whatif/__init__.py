"""What a what-if analysis found, and how it is told: JSON, a page, pictures, timelines. streams.whatif analyses."""
