// Moves messages between the processes of a cluster: proxy <-> worker, worker <-> worker, proxy <-> compiler.
//
// One Transport per process. It owns one I/O thread (epoll), all connections and the Arena. A connection is an ordered,
// reliable, full-duplex stream of messages; a message is a small header (bytes, usually a serialized protobuf) and an
// optional payload (bulk bytes). Between two processes of one host a connection is a Unix socket over which the memory
// of the Arena is passed: a payload that lives in the sender's Arena is then read in place by the receiver, no byte of
// it is copied. Between hosts it is TCP and the payload is received into the receiver's own Arena.
//
// Knows nothing of arrays. Thread-safe unless said otherwise.
#ifndef OPENPATHWAYS_TRANSPORT_TRANSPORT_H_
#define OPENPATHWAYS_TRANSPORT_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "transport/buffer.h"

namespace openpathways::transport {

struct Message {
  std::string header;
  Buffer payload;  // may be empty
};

class Connection;

// What a connection tells its owner. All calls come from the Transport's I/O thread, one at a time: they must not block
// and must not do bulk work.
struct ConnectionCallbacks {
  absl::AnyInvocable<void(Message)> on_message;
  // Exactly once, and nothing after it. The status says why: OK if this side called Close, UNAVAILABLE otherwise.
  absl::AnyInvocable<void(absl::Status)> on_closed;
};

// The Transport holds a reference of its own until the connection is closed: dropping a ConnectionRef closes nothing.
// Thread-safe.
class Connection {
 public:
  virtual ~Connection() = default;

  // Queues a message; never blocks, never fails: if the connection is (or becomes) closed the message is dropped, and
  // on_closed tells. Messages arrive in the order of the calls.
  virtual void Send(std::string header, Buffer payload = Buffer()) = 0;
  // The same for several messages at once: small ones then take one system call together.
  virtual void SendAll(std::vector<Message> messages) = 0;

  // Bytes queued and not yet handed to the kernel (or, for shared memory, not yet released by the receiver).
  virtual size_t queued_bytes() const = 0;

  // Calls `callback` once, on the I/O thread, as soon as queued_bytes() is at most `limit` or the connection is closed.
  // (Once the Transport has been destroyed there is no such thread: then on the caller's, at once.)
  virtual void OnQueueBelow(size_t limit, absl::AnyInvocable<void()> callback) = 0;

  // Sends what is queued for at most a second, then closes. on_closed follows; messages that arrive after this call are
  // dropped. Idempotent. Payloads that either side still reads in place stay untouched until it lets go of them.
  virtual void Close() = 0;

  // True if both ends are on one host and payloads pass through shared memory. False until the connection stands.
  virtual bool is_shared_memory() const = 0;

  // Peer address for messages and logs, e.g. "10.0.0.3:29005" or "unix:29005".
  virtual std::string peer() const = 0;
};

using ConnectionRef = std::shared_ptr<Connection>;

bool SharedMemoryByDefault();

struct TransportOptions {
  // False: TCP only, in both directions, even to this host. By default false only if the environment
  // says PATHWAYS_SHARED_MEMORY=off, for measurements and tests of what happens between hosts.
  bool shared_memory = SharedMemoryByDefault();
  // How many bytes of freed payload memory the Arena keeps for reuse before it gives them back to the kernel.
  size_t arena_cache_bytes = size_t{512} << 20;
};

class Transport {
 public:
  // Closes everything (as Connection::Close does), reports every connection as closed and joins the I/O thread: at most
  // about a second. Not to be called from a callback. Buffers and ConnectionRefs may outlive the Transport.
  virtual ~Transport() = default;

  static absl::StatusOr<std::unique_ptr<Transport>> Create(const TransportOptions& options = {});

  // Listens on TCP port `port` of all interfaces (0: any free one) and on the abstract Unix socket that belongs to that
  // port. For each accepted connection `accept` is called on the I/O thread with the connection and returns its
  // callbacks. Returns the port. ALREADY_EXISTS if the port is in use.
  //
  // A TCP connection that speaks HTTP/2 (a gRPC health check) is given to `http2`, if there is one: called on the I/O
  // thread with the socket, from which nothing has been read and which the callee owns. Whoever says anything else, or
  // nothing (load balancers), is let go without ado.
  using AcceptCallback = std::function<ConnectionCallbacks(ConnectionRef)>;
  using Http2Callback = std::function<void(int fd)>;
  virtual absl::StatusOr<int> Listen(int port, AcceptCallback accept, Http2Callback http2 = nullptr) = 0;

  // Connects to "host:port" (a name, IPv4 or [IPv6]). Returns at once: messages may be sent immediately; failure to
  // connect comes as on_closed(UNAVAILABLE). If the address is one of this host's own, the Unix socket is tried first.
  virtual ConnectionRef Connect(absl::string_view address, ConnectionCallbacks callbacks) = 0;

  // A connection over an inherited or paired socket (socketpair); the Transport owns `fd` from here on.
  virtual ConnectionRef Adopt(int fd, ConnectionCallbacks callbacks) = 0;

  // Runs `task` on the I/O thread. Dropped if the Transport is being destroyed.
  virtual void Post(absl::AnyInvocable<void()> task) = 0;

  // Where payload memory comes from; lives as long as the Transport.
  virtual Arena& arena() = 0;
};

}  // namespace openpathways::transport

#endif  // OPENPATHWAYS_TRANSPORT_TRANSPORT_H_
