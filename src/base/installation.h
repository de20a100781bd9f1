// Where this project's own files are on the machine.
#ifndef OPENPATHWAYS_BASE_INSTALLATION_H_
#define OPENPATHWAYS_BASE_INSTALLATION_H_

#include <string>

namespace openpathways {

// The folder of the running binary; its siblings are the other binaries. "." if the system does not tell.
std::string BinaryDirectory();

// The PJRT plugin if no flag names one: the environment variable PATHWAYS_PJRT_PLUGIN, else where `./dev setup` puts
// it, seen from build/PRESET/bin. Absolute; the file need not exist.
std::string DefaultPluginPath();

}  // namespace openpathways

#endif  // OPENPATHWAYS_BASE_INSTALLATION_H_
