#include "worker/test_cluster.h"

#include <cstdlib>
#include <functional>
#include <iostream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "pjrt/compile_options.h"

namespace openpathways::worker {
namespace {

constexpr uint64_t kController = 7;

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << std::endl;
    std::abort();
  }
  return *std::move(value);
}

}  // namespace

int64_t AwaitValue(const std::function<int64_t()>& value, int64_t expected) {
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  int64_t last = value();
  while (last != expected && absl::Now() < deadline) {
    std::this_thread::yield();
    last = value();
  }
  return last;
}

TestCluster::TestCluster(int num_workers, int devices_per_worker) : transport_(OrDie(transport::Transport::Create())) {
  for (int w = 0; w < num_workers; ++w) {
    workers_.push_back(OrDie(Worker::Create({.plugin = PATHWAYS_DEPS_DIR "/plugin/pjrt_c_api_cpu_plugin.so"})));
    Identity identity;
    identity.worker_id = 100 + w;
    identity.slice = w;
    identity.num_devices = devices_per_worker;
    identity.process_index = process_index(w);
    if (absl::Status status = workers_[w]->Join(identity); !status.ok()) {
      std::cerr << status << std::endl;
      std::abort();
    }
    controllers_.push_back(Connect(w, kController));
    OrDie(controllers_[w]->AwaitWelcome());
  }
}

TestCluster::~TestCluster() {
  controllers_.clear();
  workers_.clear();
}

WorkerAddress TestCluster::address(int w) const {
  WorkerAddress address;
  address.set_worker_id(100 + w);
  address.set_address(absl::StrCat("127.0.0.1:", workers_[w] != nullptr ? workers_[w]->port() : 1));
  address.set_slice(w);
  return address;
}

std::unique_ptr<TestController> TestCluster::Connect(int w, uint64_t controller) {
  return std::make_unique<TestController>(transport_.get(), address(w).address(), controller, 100 + w);
}

void TestCluster::Load(uint64_t executable, const std::string& serialized, const std::string& compile_options,
                       const std::vector<Place>& places) {
  Command command;
  LoadExecutable& load = *command.mutable_load_executable();
  load.set_executable(executable);
  std::vector<int64_t> devices;
  std::vector<bool> takes_part(size());
  for (int w = 0; w < size(); ++w) *load.add_participants() = address(w);
  for (const Place& place : places) {
    load.add_placement(place.worker);
    devices.push_back(plugin_device(place.worker, place.device));
    takes_part[place.worker] = true;
  }
  load.set_compile_options(OrDie(pjrt::WithDeviceAssignment(compile_options, devices)));
  for (int w = 0; w < size(); ++w) {
    if (!takes_part[w]) continue;
    transport::Buffer payload = OrDie(transport_->arena().Allocate(serialized.size()));
    std::memcpy(payload.data(), serialized.data(), serialized.size());
    controllers_[w]->Send(command, payload);
  }
}

void TestCluster::Execute(const std::vector<int>& workers, worker::Execute command,
                          const std::vector<std::vector<uint64_t>>& arguments) {
  for (size_t i = 0; i < workers.size(); ++i) {
    command.mutable_arguments()->Assign(arguments[i].begin(), arguments[i].end());
    Command sent;
    *sent.mutable_execute() = command;
    controllers_[workers[i]]->Send(sent);
  }
}

}  // namespace openpathways::worker
