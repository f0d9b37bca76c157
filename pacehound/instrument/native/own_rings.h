/* own_rings.h: the rings of this process, each written by one thread at a time (collector/native/ring.h).
 *
 * A thread gets its ring at its first record; when it ends, the next thread that comes takes it over. After the first
 * error nothing is written any more, and Python asks why (error()).
 */
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "ring_room.h"

namespace {

constexpr uint32_t kMainCapacity = 16384, kOtherCapacity = 2048;

/* What all rings of the process share. Set under the GIL, before the first hook; never freed. */
struct Process {
    std::string run_dir;
    int32_t rank = -1, local_rank = -1, world_size = -1, attempt = 0;
    uint64_t start_ticks = 0;
};
Process& process() {
    static Process* the = new Process;
    return *the;
}
std::atomic<bool> is_on{false};
std::atomic<uint32_t> generation{0}; /* one more in each forked child: its parent's rings are not its own */
std::mutex& error_lock() {
    static std::mutex* the = new std::mutex;
    return *the;
}
std::string& error_text() {
    static std::string* the = new std::string;
    return *the;
}

void switch_rings_off();

void fail(const std::string& why) {
    is_on.store(false);
    switch_rings_off();
    std::lock_guard<std::mutex> guard(error_lock());
    if (error_text().empty()) error_text() = why;
}

uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return uint64_t(t.tv_sec) * 1000000000ull + uint64_t(t.tv_nsec);
}

class Ring;
std::mutex& rings_lock() {
    static std::mutex* the = new std::mutex;
    return *the;
}
std::set<Ring*>& rings() {
    static std::set<Ring*>* the = new std::set<Ring*>;
    return *the;
}

/* A mapped ring file, there for as long as the process. One thread at a time writes it; another one may close it when the
 * process leaves. */
class Ring {
  public:
    Ring() : generation_(generation.load()) {
        const auto tid = uint32_t(syscall(SYS_gettid));
        const auto pid = uint32_t(getpid());
        const std::string folder = process().run_dir + "/rings";
        capacity_ = ph_ring_room(folder.c_str(), tid == pid ? kMainCapacity : kOtherCapacity);
        if (!capacity_) throw std::runtime_error("the rings of this run have their share of " + folder);
        size_ = PH_RING_HEADER_BYTES + size_t(capacity_) * PH_RECORD_BYTES;
        const std::string path = folder + "/" + std::to_string(pid) + "-" + std::to_string(tid) + "-" +
                                 std::to_string(now_ns()) + ".ring"; /* as in recorder.py */
        const std::string temporary = path + ".new";
        const int fd = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) throw std::runtime_error("cannot make " + temporary + ": " + strerror(errno));
        /* Every block now: a store into a page that the file system cannot provide would be a SIGBUS. */
        int failed = posix_fallocate(fd, 0, off_t(size_));
        void* memory = failed ? MAP_FAILED : mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ::close(fd);
        if (memory == MAP_FAILED) {
            ::unlink(temporary.c_str());
            throw std::runtime_error("no room for " + temporary + ": " + strerror(failed ? failed : errno));
        }
        header_ = static_cast<ph_ring_header*>(memory);
        records_ = reinterpret_cast<ph_record*>(static_cast<char*>(memory) + PH_RING_HEADER_BYTES);
        header_->magic = PH_RING_MAGIC;
        header_->version = PH_RING_VERSION;
        header_->header_bytes = PH_RING_HEADER_BYTES;
        header_->record_bytes = PH_RECORD_BYTES;
        header_->capacity = capacity_;
        header_->pid = pid;
        header_->tid = tid;
        header_->process_start_ticks = process().start_ticks;
        header_->rank = process().rank;
        header_->local_rank = process().local_rank;
        header_->world_size = process().world_size;
        header_->attempt = process().attempt;
        header_->created_ns = now_ns();
        if (::rename(temporary.c_str(), path.c_str()) != 0) {
            const int reason = errno;
            munmap(memory, size_);
            ::unlink(temporary.c_str());
            throw std::runtime_error("cannot name " + path + ": " + strerror(reason));
        }
        std::lock_guard<std::mutex> guard(rings_lock());
        rings().insert(this);
    }
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;

    bool is_ours() const { return generation_ == generation.load(std::memory_order_relaxed); }

    /* Can't fail. A signal handler may come in between: each record takes its index first. */
    void write(const ph_record& record) {
        const uint64_t index = next_++;
        ph_record* slot = records_ + (index & (capacity_ - 1));
        __atomic_store_n(&slot->stamp, 2 * index + 1, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_RELEASE);
        memcpy(reinterpret_cast<char*>(slot) + 8, reinterpret_cast<const char*>(&record) + 8, PH_RECORD_BYTES - 8);
        __atomic_store_n(&slot->stamp, 2 * index + 2, __ATOMIC_RELEASE);
        __atomic_store_n(&header_->written, next_, __ATOMIC_RELEASE);
    }
    void close() {
        if (is_ours() && !header_->closed) header_->closed = PH_RING_CLOSED;
    }
    void switch_off() {
        if (is_ours()) header_->closed = PH_RING_OFF;
    }

  private:
    uint32_t generation_, capacity_;
    size_t size_;
    ph_ring_header* header_;
    ph_record* records_;
    uint64_t next_ = 0;
};

/* Whoever reads them must not take calls that are open now for calls that do not end. */
void switch_rings_off() {
    std::lock_guard<std::mutex> guard(rings_lock());
    for (Ring* ring : rings()) ring->switch_off();
}

/* Rings whose threads have ended, under rings_lock(). */
std::vector<Ring*>& idle() {
    static std::vector<Ring*>* the = new std::vector<Ring*>;
    return *the;
}

/* The ring of one thread, from its first record to its end. Libraries make a thread for a moment: a file for each adds up. */
class OwnRing {
  public:
    Ring& get() {
        if (!ring_ || !ring_->is_ours()) {
            ring_ = taken_over();
            if (!ring_) ring_ = new Ring;
        }
        return *ring_;
    }
    ~OwnRing() {
        if (!ring_ || !ring_->is_ours()) return; /* a fork's: the lock may have been copied while another thread held it */
        std::lock_guard<std::mutex> guard(rings_lock());
        idle().push_back(ring_);
    }

  private:
    static Ring* taken_over() {
        if (syscall(SYS_gettid) == getpid()) return nullptr; /* the main thread's is larger, and its own */
        std::lock_guard<std::mutex> guard(rings_lock());
        if (idle().empty()) return nullptr;
        Ring* ring = idle().back();
        idle().pop_back();
        return ring;
    }
    Ring* ring_ = nullptr;
};
thread_local OwnRing own_ring;

void write(const ph_record& record) { own_ring.get().write(record); }

}  // namespace
