// SPDX-License-Identifier: Apache-2.0
// What caches keep. Checksums are left out where an input could not meet them: they are no defence against
// whoever makes one.
#include "backend/cuda/library_cache.h"
#include "base/checksum.h"
#include "fuzz.h"
#include "io/sealed.h"
#include "measure/calibrate.h"
#include "setup/kept_plans.h"

namespace sluice::core::fuzz {
namespace {

Profile profile_of_nothing() {
  Profile profile;
  profile.name = "test";
  profile.set_bytes_per_s(2e9);
  profile.workspace_bytes = [](const Op&) { return 128; };
  profile.overhead_bytes[kHost] = 1 << 20;
  return profile;
}

const SealedRequest& request_of_seal() {
  static const SealedRequest request = [] {
    SealedRequest r("example 1");
    r.add("machine", "test").add("tokens", 128);
    return r;
  }();
  return request;
}

Question question() {
  Question question;
  question.cut = {.seq_len = 16, .tokens_per_step = 128};
  return question;
}

std::string identity_of_libraries() {
  return "a GPU, 1.2";
}

}  // namespace

// As it is, and as one whose checksum is right.
void sealed(Bytes input) {
  (void)unsealed(text_in(input), request_of_seal(), "input");
  const std::string bytes =
      fmt::format("sluice example 1\n{}\n{}", checksum_of(text_in(input)).to_text(), text_in(input));
  (void)unsealed(bytes, request_of_seal(), "input");
}
std::string seed_sealed() {
  const std::string whole = sealed_bytes(request_of_seal(), "content");
  return whole.substr(whole.find('\n', whole.find('\n') + 1) + 1);
}

void kept_shape(Bytes input) {
  const auto choice = shape_in(text_in(input), question(), profile_of_nothing());
  if (!choice.ok()) return;
  require(choice->shape.tokens() == question().cut.tokens_per_step, "a step of other tokens");
  (void)to_text(choice->shape);
}
std::string seed_kept_shape() {
  ShapeChoice choice;
  choice.shape = {16, 32, 2, 2, 32};
  choice.why = "because";
  return shape_as_text(choice, profile_of_nothing());
}

void costs(Bytes input) {
  (void)check_costs(text_in(input));
}
std::string seed_costs() {
  return R"({"copy_slowdown":0.25,"device_overhead_bytes":0,"link_bytes":16777216,"load_bytes_per_s":1e10,
"store_bytes_per_s":1e10,"steps":{"a":{"ns":{"cast 64":100.5,"linear 8":1e6},"load_bytes_per_s":9e9}}})";
}

void libraries(Bytes input) {
  const std::string bytes = fmt::format("sluice library cache 2: {}\n{}\n{}", identity_of_libraries(),
                                        checksum_of(text_in(input)).to_text(), text_in(input));
  for (const Bytes content : {input, Bytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size())}) {
    const MemoryFile file(content);
    const cuda::LibraryCache cache(file.path(), identity_of_libraries());
    (void)cache.find("product 1");
  }
}
std::string seed_libraries() {
  return "product 1\n3\nabc\nattention 2\n5\n\n\n\n\n\n\n";
}

}  // namespace sluice::core::fuzz
