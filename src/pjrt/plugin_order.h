// Tells the thread sanitizer what it cannot see: plugins are not built with it, so the order that they make (what is
// given to a plugin happens before what the plugin then calls) has to be said where our code meets them. Elsewhere:
// nothing.
#ifndef OPENPATHWAYS_PJRT_PLUGIN_ORDER_H_
#define OPENPATHWAYS_PJRT_PLUGIN_ORDER_H_

#ifdef __SANITIZE_THREAD__
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace openpathways::pjrt {

#ifdef __SANITIZE_THREAD__
inline char plugin_order;
// Before a call into the plugin that makes it call us back later, and at the end of a callback.
inline void GiveToPlugin() { __tsan_release(&plugin_order); }
// At the start of a callback, and when the plugin has said that something is done.
inline void TakeFromPlugin() { __tsan_acquire(&plugin_order); }
#else
inline void GiveToPlugin() {}
inline void TakeFromPlugin() {}
#endif

}  // namespace openpathways::pjrt

#endif  // OPENPATHWAYS_PJRT_PLUGIN_ORDER_H_
