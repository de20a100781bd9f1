#include "pjrt/completion_threads.h"

#include <thread>
#include <utility>

namespace openpathways::pjrt {
namespace {
constexpr size_t kMaxThreads = 64;
}  // namespace

CompletionThreads& CompletionThreads::Get() {
  static auto* threads = new CompletionThreads;  // its threads run until the process ends
  return *threads;
}

void CompletionThreads::Run(absl::AnyInvocable<void()> task) {
  absl::MutexLock lock(&mu_);
  tasks_.push_back(std::move(task));
  if (idle_ < tasks_.size() && threads_ < kMaxThreads) {
    ++threads_;
    std::thread([this] { Loop(); }).detach();
  } else {
    wake_.Signal();
  }
}

void CompletionThreads::Loop() {
  while (true) {
    absl::AnyInvocable<void()> task;
    {
      absl::MutexLock lock(&mu_);
      ++idle_;
      while (tasks_.empty()) wake_.Wait(&mu_);
      --idle_;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace openpathways::pjrt
