#include "cluster/command_names.h"

namespace openpathways::cluster {

void ForEachUsedName(const worker::Command& command, absl::FunctionRef<void(uint64_t)> use) {
  switch (command.command_case()) {
    case worker::Command::kCopyBuffers:
      for (const auto& copy : command.copy_buffers().copies()) use(copy.source());
      break;
    case worker::Command::kSendBuffers:
      for (const auto& send : command.send_buffers().sends()) use(send.source());
      break;
    case worker::Command::kMoveBoxes:
      for (const auto& send : command.move_boxes().sends()) use(send.source());
      for (const auto& composition : command.move_boxes().compositions()) {
        for (const auto& piece : composition.pieces()) {
          if (piece.source() != 0) use(piece.source());
        }
      }
      break;
    case worker::Command::kBitcastBuffers:
      for (const auto& bitcast : command.bitcast_buffers().bitcasts()) use(bitcast.source());
      break;
    case worker::Command::kDeleteBuffers:
      for (uint64_t buffer : command.delete_buffers().buffers()) use(buffer);
      break;
    case worker::Command::kUnloadExecutable:
      use(command.unload_executable().executable());
      break;
    case worker::Command::kExecute:
      use(command.execute().executable());
      for (uint64_t argument : command.execute().arguments()) use(argument);
      break;
    case worker::Command::kAwait:
      for (uint64_t buffer : command.await().buffers()) use(buffer);
      break;
    case worker::Command::kReadBuffer:
      use(command.read_buffer().buffer());
      break;
    default:  // the others use no names
      break;
  }
}

void ForEachMadeName(const worker::Command& command, int64_t num_result_buffers,
                     absl::FunctionRef<void(uint64_t)> make) {
  switch (command.command_case()) {
    case worker::Command::kBeginHostTransfer:
      for (const auto& target : command.begin_host_transfer().targets()) make(target.buffer());
      break;
    case worker::Command::kCopyBuffers:
      for (const auto& copy : command.copy_buffers().copies()) make(copy.target().buffer());
      break;
    case worker::Command::kReceiveBuffers:
      for (const auto& receive : command.receive_buffers().receives()) make(receive.target().buffer());
      break;
    case worker::Command::kMoveBoxes:
      for (const auto& composition : command.move_boxes().compositions()) {
        for (const auto& target : composition.targets()) make(target.buffer());
      }
      break;
    case worker::Command::kBitcastBuffers:
      for (const auto& bitcast : command.bitcast_buffers().bitcasts()) make(bitcast.target().buffer());
      break;
    case worker::Command::kMakeErrorBuffers:
      for (uint64_t buffer : command.make_error_buffers().buffers()) make(buffer);
      break;
    case worker::Command::kLoadExecutable:
      make(command.load_executable().executable());
      break;
    case worker::Command::kExecute:
      for (int64_t i = 0; i < num_result_buffers; ++i) make(command.execute().first_result() + i);
      break;
    default:
      break;
  }
}

}  // namespace openpathways::cluster
