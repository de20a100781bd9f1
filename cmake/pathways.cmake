# Targets of this project, all with the same warnings.
#
#   pathways_library(NAME SRCS a.cc ... DEPS x y ...)      library openpathways_NAME, alias pathways::NAME
#   pathways_proto(NAME SRCS a.proto ... [GRPC])           library of generated messages (and services)
#   pathways_binary(NAME SRCS a.cc ... DEPS ...)           executable NAME in <build>/bin
#   pathways_test(NAME SRCS a_test.cc ... DEPS ...)        GoogleTest binary, registered with ctest

add_library(pathways_warnings INTERFACE)
target_compile_options(pathways_warnings INTERFACE -Wall -Wextra -Werror -Wno-unused-parameter)
target_include_directories(pathways_warnings INTERFACE ${CMAKE_SOURCE_DIR}/src)

function(pathways_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_library(openpathways_${name} STATIC ${ARG_SRCS})
  target_link_libraries(openpathways_${name} PUBLIC ${ARG_DEPS} PRIVATE pathways_warnings)
  target_include_directories(openpathways_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  if(PATHWAYS_SANITIZER)
    set_target_properties(openpathways_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
    # A unity file includes the sources, so their anonymous namespaces look like those of a header.
    target_compile_options(openpathways_${name} PRIVATE -Wno-subobject-linkage)
  endif()
  add_library(pathways::${name} ALIAS openpathways_${name})
endfunction()

function(pathways_proto name)
  cmake_parse_arguments(ARG "GRPC" "" "SRCS;DEPS" ${ARGN})
  set(out ${CMAKE_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${out})
  set(generated "")
  foreach(src ${ARG_SRCS})
    file(RELATIVE_PATH stem ${CMAKE_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR}/${src})
    string(REGEX REPLACE "\\.proto$" "" stem ${stem})
    set(files ${out}/${stem}.pb.cc ${out}/${stem}.pb.h)
    set(grpc_args "")
    if(ARG_GRPC)
      list(APPEND files ${out}/${stem}.grpc.pb.cc ${out}/${stem}.grpc.pb.h)
      set(grpc_args --grpc_out=${out} --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>)
    endif()
    add_custom_command(OUTPUT ${files} DEPENDS ${src}
      COMMAND protobuf::protoc --proto_path=${CMAKE_SOURCE_DIR}/src --cpp_out=${out} ${grpc_args}
              ${CMAKE_CURRENT_SOURCE_DIR}/${src})
    list(APPEND generated ${files})
  endforeach()
  add_library(openpathways_${name} STATIC ${generated})
  # Generated headers are system headers: our warnings do not apply to them.
  target_include_directories(openpathways_${name} SYSTEM PUBLIC ${out})
  target_link_libraries(openpathways_${name} PUBLIC protobuf::libprotobuf ${ARG_DEPS})
  if(ARG_GRPC)
    target_link_libraries(openpathways_${name} PUBLIC gRPC::grpc++)
  endif()
  add_library(pathways::${name} ALIAS openpathways_${name})
endfunction()

function(pathways_binary name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} pathways_warnings)
endfunction()

function(pathways_test name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main pathways_warnings)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_compile_definitions(${name} PRIVATE PATHWAYS_SOURCE_DIR="${CMAKE_SOURCE_DIR}" PATHWAYS_DEPS_DIR="${PATHWAYS_DEPS_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
endfunction()
