// Structs of PJRT C API extensions that no installed header declares, reduced to what is used here.
//
// Facts: openxla/xla, xla/pjrt/c/pjrt_c_api_{ffi,xla_transform,layouts}_extension.h, as of PJRT API 0.115.
#ifndef OPENPATHWAYS_PJRT_EXTENSIONS_H_
#define OPENPATHWAYS_PJRT_EXTENSIONS_H_

#include <cstddef>
#include <cstdint>

#include "pjrt_c_api.h"

namespace openpathways::pjrt {

inline constexpr int kFfiExtension = 5;
inline constexpr int kLayoutsExtension = 4;
inline constexpr int kXlaTransformExtension = 24;

struct ExtensionBase {
  size_t struct_size;
  int type;
  ExtensionBase* next;
};

// --- FFI, version 3 ----------------------------------------------------------------------------------------------
// Version 2 had a longer FfiRegisterHandlerArgs: such a plugin answers ours with an error about its size.

struct FfiTypeInfo {  // all optional
  void (*deleter)(void* object);
  void (*serialize)();
  void (*deserialize)();
};

struct FfiRegisterTypeArgs {
  size_t struct_size;
  ExtensionBase* extension_start;
  const char* name;
  size_t name_size;
  int64_t type_id;  // 0: the plugin gives one
  FfiTypeInfo* type_info;
};

struct FfiUserData {
  int64_t type_id;
  void* data;
};

struct FfiAddUserDataArgs {
  size_t struct_size;
  ExtensionBase* extension_start;
  PJRT_ExecuteContext* context;
  FfiUserData user_data;
};

struct FfiRegisterHandlerArgs {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  void* handler;
  const char* platform_name;
  size_t platform_name_size;
  uint32_t traits;
};

struct FfiExtension {
  ExtensionBase base;
  PJRT_Error* (*register_type)(FfiRegisterTypeArgs* args);
  PJRT_Error* (*add_user_data)(FfiAddUserDataArgs* args);
  PJRT_Error* (*register_handler)(FfiRegisterHandlerArgs* args);
};

// --- XLA transforms, version 1 -----------------------------------------------------------------------------------

struct TransformBytes {
  const char* data;
  size_t size;
};

struct TransformHeader {
  int64_t api_version;
  void* data;                    // out: kept until cleanup
  void (*cleanup)(void* data);   // out
  bool has_error;                // out
  PJRT_Error_Code code;          // out
  TransformBytes error_message;  // out
};

struct TransformArgs {
  size_t struct_size;
  TransformHeader header;
  TransformBytes hlo_module;
  TransformBytes transformed;  // out
  bool changed;                // out
};

struct TransformCallbacks {
  int64_t version;
  void (*destroy)(TransformCallbacks* self);
  void (*transform)(TransformCallbacks* self, TransformArgs* args);
};

struct RegisterTransformArgs {
  size_t struct_size;
  const char* name;
  size_t name_size;
  int stage;  // 0: before scheduling
  TransformCallbacks* callbacks;
};

struct TransformExtension {
  ExtensionBase base;
  PJRT_Error* (*register_transform)(RegisterTransformArgs* args);
};

// --- Layouts -----------------------------------------------------------------------------------------------------

struct LayoutsMemoryLayout;
struct LayoutsSerializedLayout;

struct LayoutsDestroyArgs {
  size_t struct_size;
  ExtensionBase* extension_start;
  LayoutsMemoryLayout* layout;
};

struct LayoutsSerializeArgs {
  size_t struct_size;
  ExtensionBase* extension_start;
  LayoutsMemoryLayout* layout;
  const char* bytes;                                     // out
  size_t size;                                           // out
  LayoutsSerializedLayout* serialized;                   // out: owns bytes
  void (*serialized_deleter)(LayoutsSerializedLayout*);  // out
};

struct LayoutsDefaultLayoutArgs {
  size_t struct_size;
  ExtensionBase* extension_start;
  PJRT_Client* client;
  PJRT_Buffer_Type type;
  const int64_t* dims;
  size_t num_dims;
  LayoutsMemoryLayout* layout;  // out
};

struct LayoutsExtension {
  ExtensionBase base;
  PJRT_Error* (*destroy)(LayoutsDestroyArgs* args);
  PJRT_Error* (*serialize)(LayoutsSerializeArgs* args);
  PJRT_Error* (*default_layout)(LayoutsDefaultLayoutArgs* args);
};

}  // namespace openpathways::pjrt

#endif  // OPENPATHWAYS_PJRT_EXTENSIONS_H_
