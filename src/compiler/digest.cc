#include "compiler/digest.h"

#include <elf.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/status.h"

namespace openpathways::compiler {
namespace {

// A file in memory, for reading.
class MappedFile {
 public:
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return absl::ErrnoToStatus(errno, path);
    struct stat info;
    void* data = MAP_FAILED;
    if (fstat(file, &info) == 0 && info.st_size > 0) {
      data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    }
    const int error = errno;
    close(file);
    if (data == MAP_FAILED) return absl::ErrnoToStatus(error, absl::StrCat("reading ", path));
    return std::unique_ptr<MappedFile>(new MappedFile(data, static_cast<size_t>(info.st_size)));
  }
  ~MappedFile() { munmap(data_, size_); }
  absl::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  MappedFile(void* data, size_t size) : data_(data), size_(size) {}
  void* const data_;
  const size_t size_;
};

// OpenSSL's digests fail for want of memory only.
void Require(bool succeeded) {
  if (succeeded) return;
  spdlog::critical("SHA-256 cannot be computed");
  std::abort();
}

template <typename T>
bool ReadAt(absl::string_view bytes, uint64_t offset, T& value) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return true;
}

uint64_t Aligned(uint64_t size) { return (size + 3) & ~uint64_t{3}; }

// The id in a segment of notes; empty if there is none.
absl::string_view FindBuildId(absl::string_view notes) {
  Elf64_Nhdr note;
  for (uint64_t at = 0; ReadAt(notes, at, note);) {
    const uint64_t name = at + sizeof(note), description = name + Aligned(note.n_namesz);
    if (description > notes.size() || notes.size() - description < note.n_descsz) break;
    if (note.n_type == NT_GNU_BUILD_ID && notes.substr(name, 4) == absl::string_view("GNU\0", 4)) {
      return notes.substr(description, note.n_descsz);
    }
    at = description + Aligned(note.n_descsz);
  }
  return {};
}

absl::string_view BuildId(absl::string_view elf) {
  Elf64_Ehdr header;
  if (!ReadAt(elf, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64) {
    return {};
  }
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!ReadAt(elf, header.e_phoff + i * header.e_phentsize, segment)) return {};
    if (segment.p_type != PT_NOTE || segment.p_offset > elf.size()) continue;
    const absl::string_view id = FindBuildId(elf.substr(segment.p_offset, segment.p_filesz));
    if (!id.empty()) return id;
  }
  return {};
}

}  // namespace

void Digest::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Digest::Digest() : context_(EVP_MD_CTX_new()) {
  Require(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Digest::AddBytes(const void* data, size_t size) { Require(EVP_DigestUpdate(context_.get(), data, size) == 1); }

Digest& Digest::Add(absl::string_view part) {
  const uint64_t size = part.size();
  AddBytes(&size, sizeof(size));
  AddBytes(part.data(), part.size());
  return *this;
}

std::string Digest::Finish() {
  std::string digest(kBytes, '\0');
  Require(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr) == 1);
  return digest;
}

absl::StatusOr<std::string> BinaryDigest(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  const absl::string_view id = BuildId(file->bytes());
  return Digest().Add(id).Add(id.empty() ? file->bytes() : "").Finish();
}

}  // namespace openpathways::compiler
