#include "worker/device_fibers.h"

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/fiber.h"
#include "spdlog/spdlog.h"

namespace openpathways::worker {
namespace {

constexpr size_t kStackBytes = size_t{2} << 20;  // taken from the machine as far as it is used

// Memory for a stack, with a page below it that must not be touched.
class Stack {
 public:
  Stack() : guard_bytes_(sysconf(_SC_PAGESIZE)) {
    memory_ = mmap(nullptr, guard_bytes_ + kStackBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory_ == MAP_FAILED || mprotect(memory_, guard_bytes_, PROT_NONE) != 0) {
      spdlog::critical("there is no memory for the stack of a device");
      std::abort();
    }
  }
  ~Stack() { munmap(memory_, guard_bytes_ + kStackBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  void* bottom() const { return static_cast<char*>(memory_) + guard_bytes_; }

 private:
  const size_t guard_bytes_;
  void* memory_;
};

}  // namespace

// What the thread and the owner have in common.
struct DeviceFibers::Shared {
  mutable std::mutex mu;  // guards what follows
  std::condition_variable changed;
  std::deque<DeviceFiber*> ready;
  size_t active = 0;  // fibers that have a task
  bool sleeping = false;
  bool stopping = false;
  std::vector<std::unique_ptr<DeviceFiber>> fibers;  // never changes

  ucontext_t scheduler;  // the thread's own stack; only for the thread

  void MakeReady(DeviceFiber* fiber) {  // REQUIRES: mu is held
    ready.push_back(fiber);
    if (std::exchange(sleeping, false)) changed.notify_one();
  }
  void Run();
};

class DeviceFibers::DeviceFiber : public Fiber {
 public:
  explicit DeviceFiber(Shared& shared) : shared_(shared) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.bottom();
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    const auto self = reinterpret_cast<uintptr_t>(this);
    makecontext(&context_, reinterpret_cast<void (*)()>(Entry), 2, static_cast<uint32_t>(self >> 32),
                static_cast<uint32_t>(self));
  }

  // REQUIRES: the lock is held.
  void Add(Task task) {
    tasks_.push_back(std::move(task));
    if (std::exchange(active_, true)) return;
    ++shared_.active;
    shared_.MakeReady(this);
  }
  // REQUIRES: the lock is held.
  std::deque<Task> TakeTasks() { return std::exchange(tasks_, {}); }

  // On the thread's own stack: goes on until the fiber waits or has nothing to do.
  void Enter() {
    SetCurrent(this);
    swapcontext(&shared_.scheduler, &context_);
    SetCurrent(nullptr);
  }
  void Suspend() override { swapcontext(&context_, &shared_.scheduler); }
  void Resume() override {
    std::lock_guard lock(shared_.mu);
    shared_.MakeReady(this);
  }

 private:
  // Arguments of a context are ints.
  static void Entry(uint32_t high, uint32_t low) {
    reinterpret_cast<DeviceFiber*>(uintptr_t{high} << 32 | low)->Loop();
  }

  [[noreturn]] void Loop() {
    while (true) {
      Task task;
      {
        std::lock_guard lock(shared_.mu);
        if (!tasks_.empty()) {
          task = std::move(tasks_.front());
          tasks_.pop_front();
        } else {
          active_ = false;
          --shared_.active;
        }
      }
      if (task) {
        task();
      } else {
        Suspend();
      }
    }
  }

  Shared& shared_;  // the owner of this object
  const Stack stack_;
  ucontext_t context_;
  std::deque<Task> tasks_;  // guarded by Shared::mu, like active_
  bool active_ = false;
};

void DeviceFibers::Shared::Run() {
  std::unique_lock lock(mu);
  while (true) {
    if (ready.empty()) {
      if (stopping && active == 0) return;
      sleeping = true;
      changed.wait(lock, [this] { return !sleeping; });
      continue;
    }
    DeviceFiber* fiber = ready.front();
    ready.pop_front();
    lock.unlock();
    fiber->Enter();
    lock.lock();
  }
}

DeviceFibers::DeviceFibers(const std::string& name, size_t num_devices) : shared_(std::make_shared<Shared>()) {
  for (size_t i = 0; i < num_devices; ++i) shared_->fibers.push_back(std::make_unique<DeviceFiber>(*shared_));
  std::thread thread([shared = shared_] { shared->Run(); });
  pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());  // the kernel keeps 15 characters
  thread.detach();
}

DeviceFibers::~DeviceFibers() {
  std::vector<std::deque<Task>> dropped;  // without the lock
  std::lock_guard lock(shared_->mu);
  shared_->stopping = true;
  for (const auto& fiber : shared_->fibers) dropped.push_back(fiber->TakeTasks());
  if (std::exchange(shared_->sleeping, false)) shared_->changed.notify_one();
}

void DeviceFibers::Post(size_t device, Task task) {
  std::lock_guard lock(shared_->mu);
  shared_->fibers[device]->Add(std::move(task));
}

}  // namespace openpathways::worker
