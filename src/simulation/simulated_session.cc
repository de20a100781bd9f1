#include "simulation/simulated_session.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/logging.h"
#include "base/status.h"
#include "pjrt/compile_options.h"
#include "worker/protocol.h"

namespace openpathways::simulation {
namespace {

using worker::Command;

constexpr const char* kMemoryKinds[] = {"device", "pinned_host", "unpinned_host"};

void SendReply(transport::Connection& connection, uint64_t request, const absl::Status& status) {
  worker::Event event;
  event.mutable_reply()->set_request(request);
  if (!status.ok()) *event.mutable_reply()->mutable_status() = StatusToProto(status);
  connection.Send(event.SerializeAsString());
}

}  // namespace

SimulatedSession::SimulatedSession(SimulatedHost* host, transport::ConnectionRef connection)
    : host_(host), connection_(std::move(connection)) {}

SimulatedSession::~SimulatedSession() {
  host_->buffers.fetch_sub(static_cast<int64_t>(buffers_.size()), std::memory_order_relaxed);
  host_->executables.fetch_sub(static_cast<int64_t>(programs_.size()), std::memory_order_relaxed);
}

absl::Status SimulatedSession::OnMessage(const transport::Message& message) {
  if (!greeted_) return Greet(message.header);
  Command command;
  if (!command.ParseFromString(message.header)) return absl::InvalidArgumentError("a message that is no command");
  return Dispatch(command, static_cast<int64_t>(message.payload.size()));
}

absl::Status SimulatedSession::Greet(const std::string& header) {
  worker::Hello hello;
  if (!hello.ParseFromString(header)) return absl::InvalidArgumentError("the first message is no Hello");
  if (hello.protocol() != worker::kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("protocol version ", hello.protocol(), ", but this simulation speaks ", worker::kProtocolVersion));
  }
  if (hello.role() != worker::Hello::CONTROLLER) {
    return absl::UnimplementedError("simulated workers exchange no data: only controllers may connect");
  }
  const uint64_t self = host_->worker_id.load(std::memory_order_acquire);
  if (hello.worker_id() != self) {
    return absl::NotFoundError(absl::StrCat("it wants worker ", hello.worker_id(), ", but this is ", self));
  }
  greeted_ = true;
  host_->free_at.resize(host_->num_devices, absl::InfinitePast());
  worker::Event event;
  worker::Welcome& welcome = *event.mutable_welcome();
  welcome.set_worker_id(self);
  for (int i = 0; i < host_->num_devices; ++i) welcome.add_plugin_device_ids(host_->first_device_id + i);
  welcome.set_platform_version("simulated");
  for (const char* kind : kMemoryKinds) welcome.add_memory_kinds(kind);
  connection_->Send(event.SerializeAsString());
  return absl::OkStatus();
}

absl::Status SimulatedSession::Dispatch(const Command& command, int64_t payload_size) {
  switch (command.command_case()) {
    case Command::kBeginHostTransfer:
      return Do(command.begin_host_transfer());
    case Command::kHostTransferData:
      return Do(command.host_transfer_data(), payload_size);
    case Command::kAbortHostTransfer:
      return Do(command.abort_host_transfer());
    case Command::kCopyBuffers:
      return Do(command.copy_buffers());
    case Command::kSendBuffers:
      return Do(command.send_buffers());
    case Command::kReceiveBuffers:
      return Do(command.receive_buffers());
    case Command::kMoveBoxes:
      return Do(command.move_boxes());
    case Command::kBitcastBuffers:
      return Do(command.bitcast_buffers());
    case Command::kMakeErrorBuffers:
      return Do(command.make_error_buffers());
    case Command::kDeleteBuffers:
      return Do(command.delete_buffers());
    case Command::kLoadExecutable:
      return Do(command.load_executable());
    case Command::kUnloadExecutable:
      return Do(command.unload_executable());
    case Command::kExecute:
      return Do(command.execute());
    case Command::kAwait:
      return Do(command.await());
    case Command::kReadBuffer:
      return Do(command.read_buffer());
    case Command::kReadNext:
      return Do(command.read_next());
    case Command::kReadCancel:  // nothing is ever pinned
    case Command::kPeerLost:    // nothing here waits for another worker
      return absl::OkStatus();
    case Command::COMMAND_NOT_SET:
      break;
  }
  return absl::UnimplementedError("a command of a kind that simulated workers do not know");
}

absl::Status SimulatedSession::Make(uint64_t name, Buffer buffer) {
  if (!buffers_.try_emplace(name, std::move(buffer)).second) {
    return absl::AlreadyExistsError(absl::StrCat("buffer ", name, " exists already"));
  }
  host_->buffers.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

SimulatedSession::Buffer SimulatedSession::Find(uint64_t name) const {
  auto found = buffers_.find(name);
  if (found == buffers_.end()) return absl::NotFoundError(absl::StrCat("buffer ", name, " does not exist"));
  return found->second;
}

absl::Status SimulatedSession::Do(const worker::BeginHostTransfer& command) {
  Transfer transfer;
  transfer.missing = command.size();
  for (const worker::Target& target : command.targets()) {
    RETURN_IF_ERROR(Make(target.buffer(), absl::Now()));
    transfer.targets.push_back(target.buffer());
  }
  if (transfer.missing != 0) transfers_[command.transfer()] = std::move(transfer);
  return absl::OkStatus();
}

absl::Status SimulatedSession::Do(const worker::HostTransferData& command, int64_t payload_size) {
  auto transfer = transfers_.find(command.transfer());
  if (transfer == transfers_.end()) {
    return absl::NotFoundError(absl::StrCat("data of transfer ", command.transfer(), ", which is not under way"));
  }
  const bool sized = transfer->second.missing >= 0;
  if (sized) transfer->second.missing -= payload_size;
  if (sized ? transfer->second.missing <= 0 : command.last()) transfers_.erase(transfer);
  return absl::OkStatus();
}

absl::Status SimulatedSession::Do(const worker::AbortHostTransfer& command) {
  auto transfer = transfers_.find(command.transfer());
  if (transfer == transfers_.end()) return absl::OkStatus();
  absl::Status status = StatusFromProto(command.status());
  if (status.ok()) status = absl::AbortedError("a host transfer was aborted without an error");
  for (uint64_t target : transfer->second.targets) {
    // It may have been deleted meanwhile.
    if (auto buffer = buffers_.find(target); buffer != buffers_.end()) buffer->second = status;
  }
  transfers_.erase(transfer);
  return absl::OkStatus();
}

absl::Status SimulatedSession::Do(const worker::CopyBuffers& command) {
  for (const auto& copy : command.copies()) RETURN_IF_ERROR(Make(copy.target().buffer(), Find(copy.source())));
  return absl::OkStatus();
}

absl::Status SimulatedSession::Do(const worker::SendBuffers& command) {
  for (const auto& send : command.sends()) {
    if (Buffer source = Find(send.source()); !source.ok()) {
      spdlog::warn("a transfer of a buffer that has failed is simulated as one that works: {}",
                   source.status().ToString());
    }
  }
  return absl::OkStatus();
}

absl::Status SimulatedSession::Do(const worker::MoveBoxes& command) {
  for (const auto& composition : command.compositions()) {
    Buffer made = absl::Now();
    for (const auto& piece : composition.pieces()) {
      if (piece.source() == 0) continue;
      if (Buffer source = Find(piece.source()); !source.ok()) made = source.status();
    }
    for (const auto& target : composition.targets()) RETURN_IF_ERROR(Make(target.buffer(), made));
  }
  return absl::OkStatus();
}

absl::Status SimulatedSession::Do(const worker::BitcastBuffers& command) {
  for (const auto& bitcast : command.bitcasts()) {
    RETURN_IF_ERROR(Make(bitcast.target().buffer(), Find(bitcast.source())));
  }
  return absl::OkStatus();
}

absl::Status SimulatedSession::Do(const worker::ReceiveBuffers& command) {
  for (const auto& receive : command.receives()) RETURN_IF_ERROR(Make(receive.target().buffer(), absl::Now()));
  return absl::OkStatus();
}

absl::Status SimulatedSession::Do(const worker::MakeErrorBuffers& command) {
  absl::Status status = StatusFromProto(command.status());
  if (status.ok()) status = absl::InvalidArgumentError("the controller made an error buffer without an error");
  for (uint64_t buffer : command.buffers()) RETURN_IF_ERROR(Make(buffer, status));
  return absl::OkStatus();
}

absl::Status SimulatedSession::Do(const worker::DeleteBuffers& command) {
  for (uint64_t buffer : command.buffers()) {
    if (buffers_.erase(buffer) == 0) {
      spdlog::warn("delete: buffer {} does not exist", buffer);
    } else {
      host_->buffers.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  return absl::OkStatus();
}

absl::Status SimulatedSession::Do(const worker::LoadExecutable& command) {
  ASSIGN_OR_RETURN(std::vector<int64_t> assignment, pjrt::ReadDeviceAssignment(command.compile_options()));
  if (assignment.size() != static_cast<size_t>(command.placement_size())) {
    return absl::InvalidArgumentError(absl::StrCat("executable ", command.executable(), " has a placement of ",
                                                   command.placement_size(), " devices and an assignment of ",
                                                   assignment.size()));
  }
  const uint64_t self = host_->worker_id.load(std::memory_order_acquire);
  std::vector<int> local;
  for (int k = 0; k < command.placement_size(); ++k) {
    if (command.placement(k) >= static_cast<uint32_t>(command.participants_size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("placement names participant ", command.placement(k), " of ", command.participants_size()));
    }
    if (command.participants(static_cast<int>(command.placement(k))).worker_id() != self) continue;
    const int64_t device = assignment[k] - host_->first_device_id;
    if (device < 0 || device >= host_->num_devices) {
      return absl::InvalidArgumentError(absl::StrCat("device ", assignment[k], " is none of this host's"));
    }
    local.push_back(static_cast<int>(device));
  }
  if (local.empty()) return absl::InvalidArgumentError("the program has no device on this worker");
  if (!programs_.try_emplace(command.executable(), std::move(local)).second) {
    return absl::AlreadyExistsError(absl::StrCat("executable ", command.executable(), " exists already"));
  }
  host_->executables.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status SimulatedSession::Do(const worker::UnloadExecutable& command) {
  if (programs_.erase(command.executable()) == 0) {
    spdlog::warn("unload: executable {} does not exist", command.executable());
  } else {
    host_->executables.fetch_sub(1, std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

absl::Time SimulatedSession::Occupy(const std::vector<int>& devices, absl::Time start) {
  absl::Time end = start;
  for (int device : devices) {
    absl::Time& free_at = host_->free_at[device];
    free_at = std::max(free_at, start) + host_->launch_time;
    end = std::max(end, free_at);
  }
  return end;
}

absl::Status SimulatedSession::Do(const worker::Execute& command) {
  Buffer done = absl::Now();
  for (uint64_t name : command.arguments()) {
    const Buffer argument = Find(name);
    if (!done.ok()) break;
    if (argument.ok()) {
      done = std::max(*done, *argument);
    } else {
      done = argument;
    }
  }
  auto program = programs_.find(command.executable());
  if (program == programs_.end()) {
    // How many results it would have had is not known: whoever uses them gets NOT_FOUND.
    done = absl::NotFoundError(
        absl::StrCat("launch ", command.launch(), ": executable ", command.executable(), " does not exist"));
  } else {
    if (done.ok()) done = Occupy(program->second, *done);
    if (command.num_results() < 0) return absl::InvalidArgumentError("a negative number of results");
    const uint64_t num_results = command.num_results() * program->second.size();
    for (uint64_t i = 0; i < num_results; ++i) RETURN_IF_ERROR(Make(command.first_result() + i, done));
  }
  host_->launches.fetch_add(1, std::memory_order_relaxed);
  if (command.completion_request() != 0) ReplyWhen(command.completion_request(), done);
  return absl::OkStatus();
}

absl::Status SimulatedSession::Do(const worker::Await& command) {
  Buffer all = absl::InfinitePast();
  for (uint64_t name : command.buffers()) {
    const Buffer buffer = Find(name);
    if (!buffer.ok()) {
      all = buffer;
      break;
    }
    all = std::max(*all, *buffer);
  }
  ReplyWhen(command.request(), all);
  return absl::OkStatus();
}

absl::Status SimulatedSession::Do(const worker::ReadBuffer& command) {
  const Buffer buffer = Find(command.buffer());
  SendReply(*connection_, command.request(),
            buffer.ok() ? absl::UnimplementedError("the devices are simulated and keep no data: nothing can be read")
                        : buffer.status());
  return absl::OkStatus();
}

absl::Status SimulatedSession::Do(const worker::ReadNext& command) {
  SendReply(*connection_, command.request(),
            absl::NotFoundError(absl::StrCat("request ", command.request(), " has pinned no data")));
  return absl::OkStatus();
}

void SimulatedSession::ReplyWhen(uint64_t request, const Buffer& done) {
  const absl::Duration wait = done.ok() ? *done - absl::Now() : absl::ZeroDuration();
  if (wait <= absl::ZeroDuration()) return SendReply(*connection_, request, done.status());
  host_->later->RunAfter(wait, [connection = std::weak_ptr<transport::Connection>(connection_), request] {
    if (transport::ConnectionRef alive = connection.lock()) SendReply(*alive, request, absl::OkStatus());
  });
}

}  // namespace openpathways::simulation
