// What code that has to wait needs to know of a thread that runs several fibers: how to let the others run meanwhile.
#ifndef OPENPATHWAYS_BASE_FIBER_H_
#define OPENPATHWAYS_BASE_FIBER_H_

namespace openpathways {

// A flow of control that shares its thread with others. It never changes the thread.
class Fiber {
 public:
  virtual ~Fiber() = default;

  // The fiber that runs on this thread; nullptr on an ordinary thread.
  static Fiber* Current() { return current_; }

  // Lets other fibers run, until Resume. On the fiber itself only.
  virtual void Suspend() = 0;
  // Lets the fiber go on. Once for each Suspend, before it or after; any thread.
  virtual void Resume() = 0;

 protected:
  static void SetCurrent(Fiber* fiber) { current_ = fiber; }

 private:
  static thread_local Fiber* current_;
};

inline thread_local Fiber* Fiber::current_ = nullptr;

}  // namespace openpathways

#endif  // OPENPATHWAYS_BASE_FIBER_H_
