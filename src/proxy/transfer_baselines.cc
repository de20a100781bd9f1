// What this machine moves without us: yardsticks for the transfers of `bench/`, each between two processes unless it
// says otherwise. Prints {name: [seconds of each repetition]} as JSON.
//
//   memcpy             inside one process
//   shared-memory      written into memory that another process maps
//   grpc-to-server     a bare client stream of messages with one `bytes` field, as a client stores a host buffer
//   grpc-to-client     a bare server stream of the same
//   socket-tcp, -unix  a raw stream over the loopback device, over a Unix socket
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/lock_checks.h"
#include "nlohmann/json.hpp"
#include "proxy/grpc_bytes.h"
#include "proxy/protos/grpc_ifrt_service.grpc.pb.h"

namespace openpathways::proxy {
namespace {

namespace wire = xla::ifrt::proxy;

struct Work {
  size_t bytes = size_t{256} << 20;
  size_t chunk = size_t{1} << 20;
  int repetitions = 5;
};

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

void Check(bool ok, const char* what) {
  if (!ok) Die(what);
}

void WriteAll(int fd, const std::byte* data, size_t size) {
  while (size > 0) {
    const ssize_t n = write(fd, data, size);
    Check(n > 0, "write");
    data += n;
    size -= n;
  }
}

void ReadAll(int fd, std::byte* data, size_t size) {
  while (size > 0) {
    const ssize_t n = read(fd, data, size);
    Check(n > 0, "read");
    data += n;
    size -= n;
  }
}

// Memory whose pages are there already: the yardsticks are not about page faults.
std::vector<std::byte> Touched(size_t size) { return std::vector<std::byte>(size, std::byte{1}); }

std::vector<double> Repeat(const Work& work, const std::function<void()>& once) {
  once();  // warms up
  std::vector<double> seconds;
  for (int i = 0; i < work.repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    once();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return seconds;
}

// The other process; ends with its parent, at the latest.
class Child {
 public:
  explicit Child(const std::function<void()>& run) : pid_(fork()) {
    Check(pid_ >= 0, "fork");
    if (pid_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run();
    std::_Exit(0);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  const pid_t pid_;
};

struct SocketPair {
  int here;
  int there;
};

SocketPair UnixPair() {
  int fds[2];
  Check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "socketpair");
  return {fds[0], fds[1]};
}

SocketPair TcpPair() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  Check(listener >= 0 && bind(listener, generic, size) == 0 && listen(listener, 1) == 0, "listen");
  Check(getsockname(listener, generic, &size) == 0, "getsockname");
  SocketPair pair{};
  pair.here = socket(AF_INET, SOCK_STREAM, 0);
  Check(connect(pair.here, generic, size) == 0, "connect");
  pair.there = accept(listener, nullptr, nullptr);
  Check(pair.there >= 0, "accept");
  close(listener);
  return pair;
}

void Close(const SocketPair& pair) {
  close(pair.here);
  close(pair.there);
}

std::vector<double> Memcpy(const Work& work) {
  const std::vector<std::byte> from = Touched(work.bytes);
  std::vector<std::byte> to = Touched(work.bytes);
  return Repeat(work, [&] { std::memcpy(to.data(), from.data(), work.bytes); });
}

std::vector<double> SharedMemory(const Work& work) {
  const int fd = memfd_create("baseline", MFD_CLOEXEC);
  Check(fd >= 0 && ftruncate(fd, static_cast<off_t>(work.bytes)) == 0, "memfd_create");
  void* memory = mmap(nullptr, work.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  Check(memory != MAP_FAILED, "mmap");
  madvise(memory, work.bytes, MADV_HUGEPAGE);
  const std::vector<std::byte> from = Touched(work.bytes);
  const SocketPair pair = UnixPair();
  std::byte token{};
  Child receiver([&] {
    while (true) {
      ReadAll(pair.there, &token, 1);
      WriteAll(pair.there, &token, 1);
    }
  });
  std::vector<double> seconds = Repeat(work, [&] {
    std::memcpy(memory, from.data(), work.bytes);
    WriteAll(pair.here, &token, 1);
    ReadAll(pair.here, &token, 1);
  });
  Close(pair);
  munmap(memory, work.bytes);
  close(fd);
  return seconds;
}

std::vector<double> Sockets(const Work& work, const SocketPair& pair) {
  std::byte token{};
  Child receiver([&] {
    std::vector<std::byte> to = Touched(work.chunk);
    while (true) {
      for (size_t done = 0; done < work.bytes; done += work.chunk) {
        ReadAll(pair.there, to.data(), std::min(work.chunk, work.bytes - done));
      }
      WriteAll(pair.there, &token, 1);
    }
  });
  const std::vector<std::byte> from = Touched(work.bytes);
  std::vector<double> seconds = Repeat(work, [&] {
    for (size_t done = 0; done < work.bytes; done += work.chunk) {
      WriteAll(pair.here, from.data() + done, std::min(work.chunk, work.bytes - done));
    }
    ReadAll(pair.here, &token, 1);
  });
  Close(pair);
  return seconds;
}

// Drops what it gets.
class Sink : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  Sink() { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartRead(&message_);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer message_;
};

// Gives bytes that it has already.
class Source : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  Source(const transport::Buffer& chunk, size_t bytes) : chunk_(chunk), left_(bytes) { Next(); }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    Next();
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (left_ == 0) return Finish(grpc::Status::OK);
    const size_t size = std::min(left_, chunk_.size());
    left_ -= size;
    message_ = SerializeDataMessage(chunk_.Slice(0, size));
    StartWrite(&message_);
  }

  const transport::Buffer chunk_;
  size_t left_;
  grpc::ByteBuffer message_;
};

using StreamService = wire::GrpcIfrtService::WithRawCallbackMethod_HostBufferStore<
    wire::GrpcIfrtService::WithRawCallbackMethod_HostBufferLookup<wire::GrpcIfrtService::Service>>;

class DroppingService : public StreamService {
 public:
  explicit DroppingService(const Work& work) : work_(work) {
    auto memory = std::make_shared<std::vector<std::byte>>(Touched(work.chunk));
    chunk_ = transport::Buffer(memory, memory->data(), memory->size());
  }

  grpc::ServerReadReactor<grpc::ByteBuffer>* HostBufferStore(grpc::CallbackServerContext* context,
                                                             grpc::ByteBuffer* response) override {
    *response = SerializeMessage(wire::GrpcHostBufferStoreResponse());
    return new Sink();
  }
  grpc::ServerWriteReactor<grpc::ByteBuffer>* HostBufferLookup(grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request) override {
    return new Source(chunk_, work_.bytes);
  }

 private:
  const Work work_;
  transport::Buffer chunk_;
};

void Serve(const Work& work, int port_fd) {
  DroppingService service(work);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  WriteAll(port_fd, reinterpret_cast<const std::byte*>(&port), sizeof(port));
  server->Wait();
}

void Finished(const grpc::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "gRPC: %s\n", status.error_message().c_str());
  std::exit(1);
}

void Store(wire::GrpcIfrtService::Stub& stub, const Work& work, const std::vector<std::byte>& from) {
  grpc::ClientContext context;
  wire::GrpcHostBufferStoreResponse response;
  auto stream = stub.HostBufferStore(&context, &response);
  wire::GrpcHostBufferStoreRequest request;
  for (size_t done = 0; done < work.bytes; done += work.chunk) {
    request.set_data(from.data() + done, std::min(work.chunk, work.bytes - done));
    Check(stream->Write(request), "gRPC stream");
  }
  stream->WritesDone();
  Finished(stream->Finish());
}

void Lookup(wire::GrpcIfrtService::Stub& stub, const Work& work) {
  grpc::ClientContext context;
  auto stream = stub.HostBufferLookup(&context, wire::GrpcHostBufferLookupRequest());
  wire::GrpcHostBufferLookupResponse response;
  size_t received = 0;
  while (stream->Read(&response)) received += response.data().size();
  Finished(stream->Finish());
  Check(received == work.bytes, "bytes are missing");
}

nlohmann::json Measure(const Work& work) {
  nlohmann::json results;
  const SocketPair pair = UnixPair();
  Child server([&] { Serve(work, pair.there); });
  results["memcpy"] = Memcpy(work);
  results["shared-memory"] = SharedMemory(work);
  results["socket-tcp"] = Sockets(work, TcpPair());
  results["socket-unix"] = Sockets(work, UnixPair());
  // Last: a process that has used gRPC must not fork.
  int port = 0;
  ReadAll(pair.here, reinterpret_cast<std::byte*>(&port), sizeof(port));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  wire::GrpcIfrtService::Stub stub(
      grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials(), arguments));
  const std::vector<std::byte> from = Touched(work.bytes);
  results["grpc-to-server"] = Repeat(work, [&] { Store(stub, work, from); });
  results["grpc-to-client"] = Repeat(work, [&] { Lookup(stub, work); });
  return results;
}

int Run(int argc, char** argv) {
  Work work;
  CLI::App app("Measures what this machine moves without OpenPathways");
  app.add_option("--bytes", work.bytes, "bytes of one repetition")->check(CLI::PositiveNumber);
  app.add_option("--chunk", work.chunk, "bytes of one message or system call")->check(CLI::PositiveNumber);
  app.add_option("--repetitions", work.repetitions)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  SkipLockChecks();
  std::printf("%s\n", Measure(work).dump().c_str());
  return 0;
}

}  // namespace
}  // namespace openpathways::proxy

int main(int argc, char** argv) { return openpathways::proxy::Run(argc, argv); }
