// A worker without a resource manager, in a process of its own: what tests kill.
//
//   test_worker WORKER_ID SLICE DEVICES PROCESS_INDEX
// Writes its port, as text, to descriptor 3 and closes it. Ends when its parent does.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/logging.h"
#include "worker/worker.h"

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc != 5) return EXIT_FAILURE;
  auto worker = openpathways::worker::Worker::Create({.plugin = PATHWAYS_DEPS_DIR "/plugin/pjrt_c_api_cpu_plugin.so"});
  if (!worker.ok()) {
    spdlog::critical("{}", worker.status().ToString());
    return EXIT_FAILURE;
  }
  openpathways::worker::Identity identity;
  identity.worker_id = std::strtoull(argv[1], nullptr, 10);
  identity.slice = std::atoi(argv[2]);
  identity.num_devices = std::atoi(argv[3]);
  identity.process_index = std::atoi(argv[4]);
  if (absl::Status status = (*worker)->Join(identity); !status.ok()) {
    spdlog::critical("{}", status.ToString());
    return EXIT_FAILURE;
  }
  const std::string port = std::to_string((*worker)->port()) + "\n";
  if (write(3, port.data(), port.size()) != static_cast<ssize_t>(port.size())) return EXIT_FAILURE;
  close(3);
  while (true) pause();
}
