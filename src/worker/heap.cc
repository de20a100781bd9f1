// What becomes of memory that the worker's process has freed. Programs free and allocate the same large results again
// and again. glibc gives such memory back to the kernel at once and has it zeroed anew a moment later, which was most
// of the time of an all-to-all of large pieces (docs/performance.md); jemalloc, with these options, keeps it for some
// seconds, in huge pages where the kernel has them, and gives it back bit by bit, by a thread of its own, once nobody
// has wanted it. jemalloc finds this variable by its name; MALLOC_CONF in the environment goes before it.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf =
    "background_thread:true,thp:always,oversize_threshold:0,dirty_decay_ms:10000,muzzy_decay_ms:0";
}
