// Messages that no honest client sends. Each gets an error; the server stays.
#include <random>

#include "grpcpp/generic/generic_stub.h"
#include "proxy/requests.h"
#include "proxy/server_test_fixture.h"
#include "proxy/session.h"

namespace openpathways::proxy {
namespace {

namespace error = tensorflow::error;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

class MalformedTest : public ServerTest {};

TEST_F(MalformedTest, ARequestWithoutOpIdIsAnError) {
  auto client = NewClient();
  wire::IfrtRequest request = ReadyRequest({});
  request.mutable_request_metadata()->set_op_id(0);
  // Send would number it.
  auto session = std::make_shared<Session>(Session::Options{
      .id = 1, .protocol_version = 25, .backend = &backend_, .send = [](wire::IfrtResponse response, Urgency) {
        EXPECT_EQ(Code(response), error::INVALID_ARGUMENT);
      }});
  session->Handle(request);
}

TEST_F(MalformedTest, ImpossibleArrays) {
  auto client = NewClient();
  uint64_t handle = 1;
  auto expect_error = [&](auto change) {
    wire::IfrtRequest request = MakeArrayRequest(handle++, 144, {4});
    change(*request.mutable_make_array_from_host_buffer_request());
    const int code = Code(client->Call(request));
    EXPECT_TRUE(code == error::INVALID_ARGUMENT || code == error::UNIMPLEMENTED || code == error::NOT_FOUND) << code;
  };
  expect_error([](auto& make) { make.mutable_shape()->set_dims(0, -4); });
  expect_error([](auto& make) { *make.mutable_shape() = Dims({INT64_MAX, INT64_MAX}); });
  expect_error([](auto& make) { make.mutable_dtype()->set_kind(static_cast<xla::ifrt::DTypeProto::Kind>(55)); });
  expect_error([](auto& make) { make.mutable_dtype()->set_kind(xla::ifrt::DTypeProto::KIND_OPAQUE); });
  expect_error([](auto& make) {
    make.mutable_dtype()->set_kind(xla::ifrt::DTypeProto::KIND_STRING);
    make.mutable_byte_strides()->add_strides(8);
  });
  expect_error([](auto& make) { make.clear_sharding(); });
  expect_error([](auto& make) { make.mutable_sharding()->mutable_serialized_sharding()->set_data("\xff\xff"); });
  expect_error([](auto& make) { *make.mutable_sharding() = HloSharding({144, 145}, Tiled({2})); });
  expect_error([](auto& make) { make.mutable_byte_strides()->add_strides(3); });
  expect_error([](auto& make) { make.mutable_layout()->mutable_serialized_layout()->set_type_name("x"); });
  EXPECT_EQ(Code(client->Call(ReadyRequest({}))), error::OK);
}

TEST_F(MalformedTest, EmptyRequestsOfEveryKind) {
  auto client = NewClient();
  const auto* descriptor = wire::IfrtRequest::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->name() == "request_metadata") continue;
    wire::IfrtRequest request;
    request.GetReflection()->MutableMessage(&request, field);
    const wire::IfrtResponse response = client->Call(request);
    EXPECT_TRUE(response.has_response_metadata()) << field->name();
    // OK with a body, or an error without one.
    EXPECT_EQ(Code(response) == error::OK, response.response_case() != 0) << field->name();
  }
}

// Fills a message with values that are mostly wrong and sometimes right.
class Scribbler {
 public:
  explicit Scribbler(uint64_t seed) : random_(seed) {}

  void Fill(Message& message, int depth) {
    const auto* descriptor = message.GetDescriptor();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      if (Below(2) != 0) Set(message, descriptor->field(i), depth);
    }
  }

  uint64_t Below(uint64_t n) { return random_() % n; }

 private:
  int64_t Number() {
    static constexpr int64_t kValues[] = {0,   1,   2,   3,   4,         7,         -1,      144,
                                          145, 150, 162, 169, INT64_MIN, INT64_MAX, 1 << 20, int64_t{1} << 48};
    return kValues[Below(std::size(kValues))];
  }
  std::string Text(const FieldDescriptor* field) {
    static const char* kNames[] = {"xla::ifrt::HloSharding",
                                   "xla::ifrt::SingleDeviceSharding",
                                   "xla::ifrt::ConcreteSharding",
                                   "xla::ifrt::ConcreteEvenSharding",
                                   "xla::ifrt::OpaqueSharding",
                                   "xla::ifrt::XlaProgram",
                                   "xla::ifrt::XlaCompileOptions",
                                   "device",
                                   "pinned_host",
                                   "good"};
    if (field->name() == "data" || field->type() == FieldDescriptor::TYPE_BYTES) {
      switch (Below(4)) {
        case 0:
          return HloSharding({144, 145}, Tiled({2})).serialized_sharding().data();
        case 1: {
          xla::ifrt::ConcreteShardingProto proto;
          Fill(proto, 3);
          return proto.SerializeAsString();
        }
        case 2: {
          xla::CompileOptionsProto proto;
          Fill(proto, 4);
          xla::ifrt::XlaCompileOptionsProto wrapper;
          wrapper.set_compile_options(proto.SerializeAsString());
          return wrapper.SerializeAsString();
        }
        default:
          std::string bytes(Below(40), '\0');
          for (char& c : bytes) c = static_cast<char>(random_());
          return bytes;
      }
    }
    return kNames[Below(std::size(kNames))];
  }

  void Set(Message& message, const FieldDescriptor* field, int depth) {
    const auto* reflection = message.GetReflection();
    const int count = field->is_repeated() ? static_cast<int>(Below(4)) : 1;
    for (int i = 0; i < count; ++i) {
      const bool add = field->is_repeated();
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_MESSAGE:
          if (depth == 0 || field->is_map()) break;
          Fill(*(add ? reflection->AddMessage(&message, field) : reflection->MutableMessage(&message, field)),
               depth - 1);
          break;
        case FieldDescriptor::CPPTYPE_STRING:
          add ? reflection->AddString(&message, field, Text(field))
              : reflection->SetString(&message, field, Text(field));
          break;
        case FieldDescriptor::CPPTYPE_BOOL:
          add ? reflection->AddBool(&message, field, Below(2)) : reflection->SetBool(&message, field, Below(2));
          break;
        case FieldDescriptor::CPPTYPE_ENUM:
          add ? reflection->AddEnumValue(&message, field, static_cast<int>(Below(9)))
              : reflection->SetEnumValue(&message, field, static_cast<int>(Below(40)));
          break;
        case FieldDescriptor::CPPTYPE_INT32:
          add ? reflection->AddInt32(&message, field, static_cast<int32_t>(Number()))
              : reflection->SetInt32(&message, field, static_cast<int32_t>(Number()));
          break;
        case FieldDescriptor::CPPTYPE_INT64:
          add ? reflection->AddInt64(&message, field, Number()) : reflection->SetInt64(&message, field, Number());
          break;
        case FieldDescriptor::CPPTYPE_UINT32:
          add ? reflection->AddUInt32(&message, field, static_cast<uint32_t>(Number()))
              : reflection->SetUInt32(&message, field, static_cast<uint32_t>(Number()));
          break;
        case FieldDescriptor::CPPTYPE_UINT64:
          add ? reflection->AddUInt64(&message, field, Number()) : reflection->SetUInt64(&message, field, Number());
          break;
        default:
          break;
      }
    }
  }

  std::mt19937_64 random_;
};

// Sessions without gRPC in between, so that many messages fit into little time.
class FuzzTest : public ServerTest {
 protected:
  void SetUp() override {
    backend_.pending_arrays = true;
    session_ = std::make_shared<Session>(Session::Options{
        .id = 1, .protocol_version = 25, .backend = &backend_, .send = [this](wire::IfrtResponse r, Urgency) {
          ++responses_;
          EXPECT_EQ(Code(r) == error::OK, r.response_case() != 0) << r.ShortDebugString();
        }});
    wire::IfrtRequest init;
    init.mutable_init_request();
    Handle(init);
  }
  void TearDown() override { session_->Close(); }

  void Handle(wire::IfrtRequest request) {
    request.mutable_request_metadata()->set_op_id(++op_id_);
    session_->Handle(request);
  }

  std::shared_ptr<Session> session_;
  uint64_t op_id_ = 0;
  int responses_ = 0;
};

TEST_F(FuzzTest, ScribbledRequestsAreAnsweredOnce) {
  const auto* descriptor = wire::IfrtRequest::descriptor();
  Scribbler scribbler(20240501);
  for (int i = 0; i < 30'000; ++i) {
    const FieldDescriptor* field = descriptor->field(static_cast<int>(scribbler.Below(descriptor->field_count())));
    if (field->name() == "request_metadata") continue;
    wire::IfrtRequest request;
    scribbler.Fill(*request.GetReflection()->MutableMessage(&request, field), 6);
    Handle(request);
    ASSERT_LE(static_cast<uint64_t>(responses_), op_id_) << request.ShortDebugString();
  }
  EXPECT_GT(responses_, 15'000);
  backend_.LoseWorker();  // whatever waits for an array
  EXPECT_EQ(static_cast<uint64_t>(responses_), op_id_);
}

TEST_F(FuzzTest, RandomBytesAreHarmless) {
  google::protobuf::LogSilencer silencer;
  std::mt19937_64 random(7);
  const std::string valid = MakeArrayRequest(5, 144, {4}).SerializeAsString();
  for (int i = 0; i < 30'000; ++i) {
    std::string bytes;
    if (i % 2 == 0) {
      bytes.resize(random() % 100);
      for (char& c : bytes) c = static_cast<char>(random());
    } else {
      bytes = valid;
      for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    wire::IfrtRequest request;
    if (request.ParseFromString(bytes)) Handle(request);
  }
}

// …and through gRPC: what cannot be parsed ends its own session only.
TEST_F(MalformedTest, GarbageOnTheStream) {
  auto other = NewClient();
  auto channel = TestClient::Connect(server_->port());
  google::protobuf::LogSilencer silencer;
  std::mt19937_64 random(11);
  for (int i = 0; i < 40; ++i) {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    wire::GrpcIfrtSessionMetadata metadata;
    metadata.mutable_version()->set_protocol_version(25);
    metadata.mutable_version()->set_ifrt_serdes_version_number(5);
    context.AddMetadata("ifrt-proxy-grpc-ifrt-session-metadata-bin", metadata.SerializeAsString());
    grpc::CompletionQueue queue;
    auto call = stub.PrepareCall(&context, "/xla.ifrt.proxy.GrpcIfrtService/IfrtSession", &queue);
    void* tag;
    bool ok;
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    std::string bytes(1 + random() % 50, '\0');
    for (char& c : bytes) c = static_cast<char>(random() | 0x80);
    grpc::Slice slice(bytes);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    queue.Next(&tag, &ok);
    grpc::Status status;
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
  }
  EXPECT_EQ(Code(other->Call(ReadyRequest({}))), error::OK);
}

}  // namespace
}  // namespace openpathways::proxy
