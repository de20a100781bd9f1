#include "base/status.h"

#include <gtest/gtest.h>

#include "absl/strings/cord.h"

namespace openpathways {
namespace {

TEST(StatusTest, RoundTripKeepsCodeMessageAndPayload) {
  absl::Status status = absl::DataLossError("slice 0 host 1 is lost");
  status.SetPayload("key", absl::Cord("value"));
  absl::Status back = StatusFromProto(StatusToProto(status));
  EXPECT_EQ(back, status);
  EXPECT_TRUE(StatusFromProto(StatusToProto(absl::OkStatus())).ok());
}

TEST(StatusTest, AnnotateKeepsCodeAndPayload) {
  absl::Status status = absl::NotFoundError("array 7");
  status.SetPayload("key", absl::Cord("value"));
  absl::Status annotated = AnnotateStatus(status, "execute");
  EXPECT_EQ(annotated.message(), "execute: array 7");
  EXPECT_EQ(annotated.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(annotated.GetPayload("key"), absl::Cord("value"));
  EXPECT_TRUE(AnnotateStatus(absl::OkStatus(), "execute").ok());
}

}  // namespace
}  // namespace openpathways
