// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "dataset/batches.h"
#include "fuzz.h"
#include "io/file.h"

namespace sluice::core::fuzz {

void token_file(Bytes input) {
  const MemoryFile memory(input);
  auto file = TokenFile::open(memory.path());
  if (!file.ok()) return;
  std::vector<int32_t> tokens(size_t(file->tokens()));
  file->read(0, tokens);
  for (const int32_t token : tokens)
    require(token >= 0 && token <= file->max_token(), "a token above the largest");
  for (const BatchMode mode : {BatchMode::Contiguous, BatchMode::Packed}) {
    auto set = TokenFile::open(memory.path());
    BatchOptions options;
    options.mode = mode;
    options.sequence = 4, options.rows = 2, options.vocab = int64_t{1} << 31;
    std::vector<TokenFile> files;
    files.push_back(std::move(*set));
    const auto batches = make_batches(TokenSet(std::move(files)), options);
    if (!batches.ok()) continue;
    Rows row({BatchColumn::Tokens, BatchColumn::Targets, BatchColumn::Positions, BatchColumn::Paths}, 4);
    for (int64_t step = 0; step < 3; ++step) (*batches)->fill(step, 1, row.part(0, 4));
  }
}

std::string seed_token_file() {
  // A file that was never in a directory has no other way to be written.
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("sluice-fuzz-{}.tokens", ::getpid());
  auto writer = TokenFileWriter::create(path, 2);
  require(writer.ok(), "the seed could not be written");
  require(writer->append(std::vector<int32_t>{1, 2, 3, 9, 4, 5, 6}).ok(), "the seed could not be written");
  writer->end_document();
  require(writer->append(std::vector<int32_t>{7, 8, 9}).ok() && writer->commit().ok(),
          "the seed could not be written");
  std::string content = *read_file(path);
  std::filesystem::remove(path);
  return content;
}

}  // namespace sluice::core::fuzz
