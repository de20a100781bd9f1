// pathways_server: the entry point of the container image `server`. Becomes the resource manager or a worker.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/installation.h"
#include "server/role.h"

int main(int argc, char** argv) {
  const absl::StatusOr<std::string> binary = openpathways::server::BinaryForArguments(argc, argv);
  if (!binary.ok()) {
    std::fprintf(stderr, "pathways_server: %s\n", std::string(binary.status().message()).c_str());
    return EXIT_FAILURE;
  }
  const std::string path = openpathways::BinaryDirectory() + "/" + *binary;
  execv(path.c_str(), argv);
  std::fprintf(stderr, "pathways_server: cannot start %s: %s\n", path.c_str(), std::strerror(errno));
  return EXIT_FAILURE;
}
