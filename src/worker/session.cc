#include "worker/session.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/future.h"
#include "base/logging.h"
#include "base/status.h"
#include "worker/reply.h"

namespace openpathways::worker {

Session::Session(SessionResources resources, uint64_t controller, transport::ConnectionRef connection,
                 std::function<void()> on_ended)
    : resources_(std::move(resources)),
      controller_(controller),
      connection_(std::move(connection)),
      on_ended_(std::move(on_ended)),
      buffers_(resources_.stats),
      executor_(std::make_shared<SerialExecutor>("commands")) {
  resources_.stats->controllers.fetch_add(1, std::memory_order_relaxed);
  executor_->Post([this] { Begin(); });
}

Session::~Session() {
  executor_->Shutdown();
  resources_.stats->controllers.fetch_sub(1, std::memory_order_relaxed);
}

void Session::Begin() {
  resources_.incoming->AddController(controller_);
  auto client = resources_.clients->Acquire();
  if (!client.ok()) return Break(AnnotateStatus(client.status(), "no PJRT client for another controller"));
  client_ = *std::move(client);
  launches_ = std::make_unique<LaunchQueue>(controller_, *client_, resources_.engine, executor_, resources_.stats);

  Event event;
  Welcome& welcome = *event.mutable_welcome();
  welcome.set_worker_id(resources_.worker_id);
  for (const pjrt::Device* device : client_->local_devices()) welcome.add_plugin_device_ids(device->id());
  welcome.set_platform_version(client_->platform_version());
  if (!client_->local_devices().empty()) {
    for (const pjrt::Memory* memory : client_->local_devices()[0]->memories()) welcome.add_memory_kinds(memory->kind());
  }
  connection_->Send(event.SerializeAsString());
}

void Session::OnMessage(transport::Message message) {
  auto command = std::make_unique<Command>();
  const bool parsed = command->ParseFromString(message.header);
  const bool is_bulk = !message.payload.empty();
  Task task = [this, parsed, command = std::move(command), payload = std::move(message.payload)]() mutable {
    if (broken_) return;
    absl::Status status =
        parsed ? Dispatch(*command, std::move(payload)) : absl::InvalidArgumentError("a message that is no command");
    if (!status.ok()) Break(status);
  };
  // Commands without data are quickly done, so the caller, the I/O thread, may do them; not those that copy bytes.
  if (is_bulk) return executor_->Post(std::move(task));
  executor_->RunOrPost(std::move(task));
}

void Session::End() {
  executor_->Post([this] { FreeAll(); });
}

void Session::Break(const absl::Status& status) {
  broken_ = true;
  spdlog::error("closing the connection of controller {} ({}): {}", controller_, connection_->peer(),
                status.ToString());
  connection_->Close();
}

void Session::FreeAll() {
  if (std::exchange(freed_, true)) return;
  broken_ = true;
  launches_.reset();
  host_transfers_.clear();
  reads_.clear();
  programs_.clear();
  buffers_.Clear();
  resources_.incoming->DropController(controller_);
  resources_.engine->OnControllerLost(controller_);
  if (client_ != nullptr) resources_.clients->Release(std::move(client_));
  on_ended_();
}

absl::Status Session::Dispatch(const Command& command, transport::Buffer payload) {
  switch (command.command_case()) {
    case Command::kBeginHostTransfer:
      return Do(command.begin_host_transfer());
    case Command::kHostTransferData:
      return Do(command.host_transfer_data(), std::move(payload));
    case Command::kAbortHostTransfer:
      return Do(command.abort_host_transfer());
    case Command::kCopyBuffers:
      return Do(command.copy_buffers());
    case Command::kSendBuffers:
      return Do(command.send_buffers());
    case Command::kReceiveBuffers:
      return Do(command.receive_buffers());
    case Command::kMakeErrorBuffers:
      return Do(command.make_error_buffers());
    case Command::kDeleteBuffers:
      return Do(command.delete_buffers());
    case Command::kLoadExecutable:
      return Do(command.load_executable(), std::move(payload));
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
    case Command::kReadCancel:
      return Do(command.read_cancel());
    case Command::kPeerLost:
      return Do(command.peer_lost());
    case Command::kMoveBoxes:
      return Do(command.move_boxes());
    case Command::kBitcastBuffers:
      return Do(command.bitcast_buffers());
    case Command::COMMAND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a command of a kind that this worker does not know");
}

absl::StatusOr<TargetBuffer> Session::MakeTarget(const Target& target) {
  TargetBuffer result;
  ASSIGN_OR_RETURN(result.buffer, buffers_.Make(target.buffer()));
  const std::vector<pjrt::Device*>& devices = client_->local_devices();
  if (target.device() < 0 || target.device() >= static_cast<int>(devices.size())) {
    result.buffer->Set(absl::InvalidArgumentError(absl::StrCat("a buffer was to be made on device ", target.device(),
                                                               " of a worker with ", devices.size(), " devices")));
    return result;
  }
  pjrt::Device* device = devices[target.device()];
  result.memory = device->FindMemory(target.memory_kind());
  if (result.memory == nullptr) {
    result.buffer->Set(absl::InvalidArgumentError(
        absl::StrCat("device ", target.device(), " has no memory of kind \"", target.memory_kind(), "\"")));
    return result;
  }
  result.minor_to_major.assign(target.minor_to_major().begin(), target.minor_to_major().end());
  result.device = device;
  return result;
}

absl::Status Session::Do(const MakeErrorBuffers& command) {
  absl::Status status = StatusFromProto(command.status());
  if (status.ok()) status = absl::InvalidArgumentError("the controller made an error buffer without an error");
  for (uint64_t id : command.buffers()) {
    ASSIGN_OR_RETURN(NamedBufferRef buffer, buffers_.Make(id));
    buffer->Set(status);
  }
  return absl::OkStatus();
}

absl::Status Session::Do(const DeleteBuffers& command) {
  for (uint64_t id : command.buffers()) {
    if (absl::Status status = buffers_.Delete(id); !status.ok()) {
      spdlog::warn("controller {}: delete: {}", controller_, status.ToString());
    }
  }
  return absl::OkStatus();
}

absl::Status Session::Do(const LoadExecutable& command, transport::Buffer payload) {
  auto program = std::make_shared<Program>(command, resources_.worker_id, resources_.stats);
  if (!programs_.try_emplace(command.executable(), program).second) {
    return absl::AlreadyExistsError(absl::StrCat("executable ", command.executable(), " exists already"));
  }
  for (const WorkerAddress& participant : command.participants()) resources_.peers->Connect(participant);
  program->Load(resources_.pool, client_, std::move(payload), command.compile_options());
  return absl::OkStatus();
}

absl::Status Session::Do(const UnloadExecutable& command) {
  if (programs_.erase(command.executable()) == 0) {
    spdlog::warn("controller {}: unload: executable {} does not exist", controller_, command.executable());
  }
  return absl::OkStatus();
}

absl::Status Session::Do(const Execute& command) {
  LaunchRequest request;
  if (command.completion_request() != 0) {
    request.on_done = [connection = connection_, id = command.completion_request()](const absl::Status& status,
                                                                                    int64_t device_nanos) {
      SendCompletion(connection, id, status, device_nanos);
    };
  }
  auto program = programs_.find(command.executable());
  if (program == programs_.end()) {
    // How many results it would have had is not known: whoever uses them gets NOT_FOUND.
    absl::Status status = absl::NotFoundError(
        absl::StrCat("launch ", command.launch(), ": executable ", command.executable(), " does not exist"));
    spdlog::error("controller {}: {}", controller_, status.ToString());
    if (request.on_done) request.on_done(status, 0);
    return absl::OkStatus();
  }
  request.program = program->second;
  request.launch = command.launch();
  request.non_donatable.assign(command.non_donatable().begin(), command.non_donatable().end());
  request.arguments.reserve(command.arguments_size());
  for (uint64_t argument : command.arguments()) request.arguments.push_back(buffers_.Find(argument));
  if (command.num_results() < 0) return absl::InvalidArgumentError("a negative number of results");
  const uint64_t num_results = command.num_results() * request.program->local_devices().size();
  request.results.reserve(num_results);
  for (uint64_t i = 0; i < num_results; ++i) {
    ASSIGN_OR_RETURN(NamedBufferRef result, buffers_.Make(command.first_result() + i, NamedBuffer::Maker::kLaunch));
    request.results.push_back(std::move(result));
  }
  launches_->Add(std::move(request));
  return absl::OkStatus();
}

absl::Status Session::Do(const Await& command) {
  std::vector<Future<>> ready;
  ready.reserve(command.buffers_size());
  for (uint64_t id : command.buffers()) ready.push_back(buffers_.Find(id)->Ready());
  WhenAll(ready).OnReady([connection = connection_, request = command.request()](const absl::Status& status) {
    SendReply(connection, request, status);
  });
  return absl::OkStatus();
}

absl::Status Session::Do(const PeerLost& command) {
  absl::Status status = StatusFromProto(command.status());
  if (status.ok()) status = absl::UnavailableError("the controller says so");
  resources_.peers->MarkLost(command.worker_id(), status);
  return absl::OkStatus();
}

}  // namespace openpathways::worker
