// A slow and lossy link between two network namespaces, for measurements where the kernel has no netem:
//   emulated_link FIRST SECOND --delay-us=N --loss=PERCENT
// makes a tun device `link0` in each namespace and carries packets between them until its standard input ends. Each
// direction has a thread of its own, delays each packet by N microseconds and drops each with the given probability.
// Packets are single ones (no segmentation offload), so a loss is the loss of one packet. Needs root.
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "transport/unique_fd.h"

namespace openpathways::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxPacket = 65536;
constexpr size_t kMaxQueuedBytes = size_t{256} << 20;  // then the link drops, as a router would
constexpr int kBurst = 64;                             // packets read in a row before others are looked at
constexpr std::chrono::milliseconds kStopCheck(200);

struct Impairment {
  std::chrono::microseconds delay{0};
  double loss = 0;  // probability
};

void Check(bool ok, const std::string& what) {
  if (ok) return;
  std::perror(what.c_str());
  std::exit(1);
}

// The device's other end: what the namespace sends is read from it, what is written to it arrives there.
UniqueFd OpenDevice(const std::string& network_namespace) {
  const std::string path = "/run/netns/" + network_namespace;
  const UniqueFd ns(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Check(ns.valid() && setns(ns.get(), CLONE_NEWNET) == 0, path);
  UniqueFd device(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  Check(device.valid(), "/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, "link0", IFNAMSIZ - 1);
  Check(ioctl(device.get(), TUNSETIFF, &request) == 0, "TUNSETIFF");
  return device;
}

// One direction.
class Lane {
 public:
  Lane(int from, int to, Impairment impairment, unsigned seed)
      : from_(from), to_(to), impairment_(impairment), random_(seed), packet_(kMaxPacket) {}

  void Run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      Wait();
      for (int i = 0; i < kBurst && Take(); ++i) continue;
      Deliver();
    }
  }

 private:
  struct Packet {
    Clock::time_point due;
    std::vector<char> bytes;
  };

  // Until a packet comes or one is due.
  void Wait() const {
    auto patience = std::chrono::nanoseconds(kStopCheck);
    if (!queue_.empty()) patience = std::max(std::chrono::nanoseconds(0), queue_.front().due - Clock::now());
    const timespec timeout{.tv_sec = static_cast<time_t>(patience.count() / 1'000'000'000),
                           .tv_nsec = static_cast<long>(patience.count() % 1'000'000'000)};
    pollfd readable{.fd = from_, .events = POLLIN, .revents = 0};
    Check(ppoll(&readable, 1, &timeout, nullptr) >= 0 || errno == EINTR, "ppoll");
    // A device that is down is readable, but reading it fails.
    if ((readable.revents & POLLERR) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  // False if there is no packet.
  bool Take() {
    const ssize_t size = read(from_, packet_.data(), packet_.size());
    if (size <= 0) return false;
    if (std::bernoulli_distribution(impairment_.loss)(random_) || queued_ + size > kMaxQueuedBytes) return true;
    if (impairment_.delay.count() == 0) {
      Write(packet_.data(), size);
      return true;
    }
    queued_ += size;
    queue_.push_back({Clock::now() + impairment_.delay, {packet_.begin(), packet_.begin() + size}});
    return true;
  }

  void Deliver() {
    const auto now = Clock::now();
    while (!queue_.empty() && queue_.front().due <= now) {
      Write(queue_.front().bytes.data(), queue_.front().bytes.size());
      queued_ -= queue_.front().bytes.size();
      queue_.pop_front();
    }
  }

  // A packet that the device does not take (it is down) is lost, as on any link.
  void Write(const char* data, size_t size) const {
    if (write(to_, data, size) < 0 && errno != EIO && errno != EAGAIN && errno != EINVAL) Check(false, "write");
  }

  const int from_;
  const int to_;
  const Impairment impairment_;
  std::mt19937 random_;
  std::vector<char> packet_;
  std::deque<Packet> queue_;
  size_t queued_ = 0;  // bytes
};

int Run(int argc, char** argv) {
  std::string first, second;
  int64_t delay_us = 0;
  double loss_percent = 0;
  CLI::App app("A slow and lossy link between two network namespaces");
  app.add_option("first", first, "name of a network namespace")->required();
  app.add_option("second", second, "name of another")->required();
  app.add_option("--delay-us", delay_us, "microseconds, one way")->check(CLI::Range(0, 1'000'000));
  app.add_option("--loss", loss_percent, "percent of the packets of each direction")->check(CLI::Range(0.0, 100.0));
  CLI11_PARSE(app, argc, argv);
  const Impairment impairment{std::chrono::microseconds(delay_us), loss_percent / 100};

  const UniqueFd a = OpenDevice(first);
  const UniqueFd b = OpenDevice(second);
  std::jthread there([&](std::stop_token stop) { Lane(a.get(), b.get(), impairment, 1).Run(stop); });
  std::jthread back([&](std::stop_token stop) { Lane(b.get(), a.get(), impairment, 2).Run(stop); });
  std::puts("ready");
  std::fflush(stdout);
  char ignored;
  while (read(STDIN_FILENO, &ignored, 1) > 0) continue;
  return 0;
}

}  // namespace
}  // namespace openpathways::transport

int main(int argc, char** argv) { return openpathways::transport::Run(argc, argv); }
