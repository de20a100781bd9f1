// What this process may use of its machine: in a container, less than there is.
#ifndef OPENPATHWAYS_BASE_MACHINE_H_
#define OPENPATHWAYS_BASE_MACHINE_H_

#include <cstddef>
#include <string>

namespace openpathways {

// Processors that the process may run on, or those that its control group's quota is worth (rounded up) if that is
// less. At least 1.
int AvailableCpus();

// Bytes of memory of the machine, or the limit of the process's control group, or of one around it, if that is less.
size_t MemoryLimit();

namespace machine_internal {
// The same for a machine whose /proc and /sys are below `root`.
int AvailableCpus(const std::string& root, int scheduled);
size_t MemoryLimit(const std::string& root, size_t physical);
}  // namespace machine_internal

}  // namespace openpathways

#endif  // OPENPATHWAYS_BASE_MACHINE_H_
