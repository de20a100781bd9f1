#include "compiler/program_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/digest.h"
#include "gtest/gtest.h"

namespace openpathways::compiler {
namespace {

namespace fs = std::filesystem;

class ProgramDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "programs.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  void TearDown() override { fs::remove_all(path_); }

  static std::string Key(int n) { return Digest().Add(absl::StrCat(n)).Finish(); }
  static StoredProgram Program(int n, size_t bytes = 100) {
    StoredProgram program;
    program.set_key(Key(n));
    program.mutable_program()->set_name(absl::StrCat("jit_", n));
    program.set_serialized_executable(std::string(bytes, static_cast<char>('a' + n % 26)));
    return program;
  }
  // As if it had been used that long ago.
  static void MakeOld(const std::string& file, int seconds) {
    timespec times[2] = {{std::time(nullptr) - seconds, 0}, {std::time(nullptr) - seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  }

  std::string path_;
};

TEST_F(ProgramDirectoryTest, KeepsProgramsForOthers) {
  ProgramDirectory writer(path_, 1 << 20), reader(path_, 1 << 20);
  EXPECT_FALSE(reader.Read(Key(1)).has_value());
  ASSERT_TRUE(writer.Write(Program(1)).ok());
  std::optional<StoredProgram> program = reader.Read(Key(1));
  ASSERT_TRUE(program.has_value());
  EXPECT_EQ(program->program().name(), "jit_1");
  EXPECT_EQ(program->serialized_executable(), Program(1).serialized_executable());
  EXPECT_FALSE(reader.Read(Key(2)).has_value());
}

TEST_F(ProgramDirectoryTest, RemovesWhatIsDamaged) {
  ProgramDirectory directory(path_, 1 << 20);
  const std::string file = directory.FileOf(Key(1));
  auto size = [&] { return fs::file_size(file); };
  const std::vector<std::function<void()>> damages = {
      [&] { fs::resize_file(file, size() / 2); },
      [&] { fs::resize_file(file, 10); },
      [&] { fs::resize_file(file, 0); },
      [&] { fs::resize_file(file, size() + 1); },
      [&] { std::fstream(file, std::ios::in | std::ios::out).seekp(90).put('~'); },
      [&] { std::ofstream(file) << "somebody else's"; },
      [&] { fs::copy_file(directory.FileOf(Key(2)), file, fs::copy_options::overwrite_existing); },
  };
  ASSERT_TRUE(directory.Write(Program(2)).ok());
  for (const auto& damage : damages) {
    ASSERT_TRUE(directory.Write(Program(1)).ok());
    ASSERT_TRUE(directory.Read(Key(1)).has_value());
    damage();
    EXPECT_FALSE(directory.Read(Key(1)).has_value());
    EXPECT_FALSE(fs::exists(file));
  }
  EXPECT_TRUE(directory.Read(Key(2)).has_value());
}

TEST_F(ProgramDirectoryTest, RemovesWhatWasUsedLeastRecently) {
  ProgramDirectory directory(path_, 10'000);
  for (int n = 0; n < 8; ++n) {
    ASSERT_TRUE(directory.Write(Program(n, 1000)).ok());
    MakeOld(directory.FileOf(Key(n)), 1000 - n);
  }
  EXPECT_TRUE(directory.Read(Key(0)).has_value());  // used now
  for (int n = 8; n < 12; ++n) ASSERT_TRUE(directory.Write(Program(n, 1000)).ok());
  EXPECT_TRUE(directory.Read(Key(0)).has_value());
  EXPECT_FALSE(directory.Read(Key(1)).has_value());
  EXPECT_TRUE(directory.Read(Key(11)).has_value());
  EXPECT_LE(directory.Measure().bytes, 10'000);
}

TEST_F(ProgramDirectoryTest, SeveralShareTheBound) {
  constexpr int kBound = 40'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ProgramDirectory directory(path_, kBound);
      for (int n = 0; n < 50; ++n) {
        const int k = n % 2 == 0 ? n : 1000 * t + n;  // some are written by all
        EXPECT_TRUE(directory.Write(Program(k, 1000)).ok());
        const std::optional<StoredProgram> read = directory.Read(Key(k));
        // Another thread may have removed it.
        EXPECT_TRUE(!read.has_value() || read->program().name() == absl::StrCat("jit_", k));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(ProgramDirectory(path_, kBound).Measure().bytes, 2 * kBound);
}

TEST_F(ProgramDirectoryTest, WhatIsLargerThanHalfOfAllIsNotKept) {
  ProgramDirectory directory(path_, 10'000);
  EXPECT_EQ(directory.Write(Program(1, 6000)).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(directory.Measure().programs, 0);
}

TEST_F(ProgramDirectoryTest, AnUnusableDirectoryIsAnErrorOfWritesOnly) {
  std::ofstream(path_ + "/file") << "not a directory";
  ProgramDirectory directory(path_ + "/file/programs", 1 << 20);
  EXPECT_FALSE(directory.Read(Key(1)).has_value());
  EXPECT_FALSE(directory.Write(Program(1)).ok());
  EXPECT_EQ(directory.Measure().programs, 0);
}

TEST_F(ProgramDirectoryTest, NothingUnfinishedStays) {
  ProgramDirectory directory(path_, 1 << 20);
  ASSERT_TRUE(directory.Write(Program(1)).ok());
  fs::remove(directory.FileOf(Key(1)));
  fs::create_directory(directory.FileOf(Key(1)));  // nothing can be renamed to this
  EXPECT_FALSE(directory.Write(Program(1)).ok());
  for (const auto& entry : fs::recursive_directory_iterator(path_)) EXPECT_TRUE(entry.is_directory()) << entry.path();
}

TEST(DigestTest, DependsOnHowBytesAreDivided) {
  EXPECT_EQ(Digest().Add("ab").Add("c").Finish(), Digest().Add("ab").Add("c").Finish());
  EXPECT_NE(Digest().Add("ab").Add("c").Finish(), Digest().Add("a").Add("bc").Finish());
}

TEST(DigestTest, OfABinary) {
  const absl::StatusOr<std::string> self = BinaryDigest("/proc/self/exe");
  ASSERT_TRUE(self.ok()) << self.status();
  EXPECT_EQ(self->size(), Digest::kBytes);
  EXPECT_NE(*self, *BinaryDigest("/bin/sh"));
  EXPECT_EQ(BinaryDigest("/nowhere").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace openpathways::compiler
