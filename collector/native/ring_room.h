/* ring_room.h: how large a ring may be where it lies, for the writers in C and C++ (pacehound/instrument/ring.py has the
 * same for Python).
 *
 * Rings lie in /dev/shm, which is 64 MiB in a container and belongs to the job: its DataLoaders pass their batches
 * through it. All rings of a run take a quarter of it at most, and of what is free there; one ring an eighth of what is
 * left of that, so that the next one finds room, too.
 */
#ifndef PACEHOUND_RING_ROOM_H
#define PACEHOUND_RING_ROOM_H

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "ring.h"

enum { PH_ROOM_PARTS = 4, PH_ROOM_RINGS = 8, PH_LEAST_CAPACITY = 256 };

/* The largest capacity up to `wanted` (a power of two) that a new ring in `folder` may have; 0: there is no room for any.
 * Where the file system does not say how large it is, `wanted`. A few microseconds and one per ring that is there. */
static inline uint32_t ph_ring_room(const char *folder, uint32_t wanted) {
    struct statvfs where;
    struct stat ring;
    uint64_t taken = 0;
    if (statvfs(folder, &where) != 0 || where.f_blocks == 0) return wanted;
    DIR *rings = opendir(folder);
    if (rings) {
        for (struct dirent *entry; (entry = readdir(rings)) != NULL;)
            if (entry->d_name[0] != '.' && fstatat(dirfd(rings), entry->d_name, &ring, AT_SYMLINK_NOFOLLOW) == 0)
                taken += (uint64_t)ring.st_size;
        closedir(rings);
    }
    uint64_t budget = (uint64_t)where.f_blocks * where.f_frsize / PH_ROOM_PARTS;
    uint64_t left = budget > taken ? budget - taken : 0;
    uint64_t share = (uint64_t)where.f_bavail * where.f_frsize / PH_ROOM_PARTS;
    if (left > share) left = share;
    uint32_t capacity = wanted;
    while (capacity && PH_RING_HEADER_BYTES + (uint64_t)capacity * PH_RECORD_BYTES > left / PH_ROOM_RINGS) capacity /= 2;
    return capacity < PH_LEAST_CAPACITY ? 0 : capacity;
}

#endif
