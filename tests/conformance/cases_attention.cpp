// SPDX-License-Identifier: Apache-2.0
// Cases of attention.
#include <cmath>

#include "conformance/case_list.h"

namespace sluice::core::conformance {

namespace {

struct Attention {
  AttnShape shape;  // dtype to be filled in
  std::vector<int64_t> documents;
  std::string note;
};

std::vector<Attention> attention_shapes() {
  return {
      {{1, 1, 1, 1, 1, 8, 0, false}, {}, "one_token"},
      {{1, 7, 7, 2, 2, 16, 0, false}, {}, ""},
      {{3, 33, 33, 4, 2, 32, 0, false}, {}, "rows"},
      {{1, 129, 129, 4, 1, 64, 0, false}, {}, ""},
      {{2, 40, 40, 4, 4, 80, 0, false}, {}, ""},
      {{1, 65, 65, 8, 2, 128, 0, false}, {}, ""},
      {{1, 70, 70, 4, 2, 256, 0, false}, {}, ""},
      {{1, 128, 128, 2, 1, 256, 0, false}, {}, ""},
      {{1, 40, 40, 2, 1, 200, 0, true}, {0, 7, 33}, "documents"},
      {{1, 16, 16, 2, 1, 16, 0, false}, {-9}, "document_began_before"},
      {{1, 33, 33, 2, 1, 16, 0, true}, {0, 5, 20, 21}, "documents"},
      {{2, 48, 48, 4, 2, 64, 0, true}, {0, 17, 31}, "documents"},
      {{1, 24, 24, 2, 2, 32, 0, true}, {-7, 10}, "document_began_before"},
      {{1, 24, 24, 4, 2, 32, 24, false}, {}, "next_block"},
      {{1, 7, 33, 2, 2, 16, 40, false}, {}, "far_block"},
      {{1, 33, 16, 4, 1, 64, 16, false}, {}, "short_block"},
      {{1, 24, 24, 4, 2, 32, 24, true}, {0, 10, 30, 40}, "documents_across"},
      {{1, 33, 40, 2, 1, 80, 47, true}, {-2, 39, 60}, "one_key_visible"},
      {{1, 16, 16, 2, 1, 8, 16, true}, {-3, 16}, "nothing_visible"},
  };
}

}  // namespace

void add_attention(List& list) {
  for (const Attention& attention : attention_shapes()) {
    AttnShape shape = attention.shape;
    const auto add = [&](Op op) {
      list.add(std::move(op), attention.note, {.documents = attention.documents});
    };
    for (const DType dtype : kDTypes) {
      shape.dtype = dtype;
      add(AttnFwd{shape, dtype, false});
      if (dtype != kF32) add(AttnFwd{shape, kF32, false});
      add(AttnFwd{shape, kF32, true});
    }
    for (const auto [dtype, grad] : kGradDTypes) {
      shape.dtype = dtype;
      add(AttnBwd{shape, grad, false, false});
      if (shape.head_dim <= 32) {
        add(AttnBwd{shape, grad, true, false});
        add(AttnBwd{shape, grad, false, true});
      }
      add(AttnBwd{shape, grad, true, true});
    }
  }
  for (const DType dtype : kDTypes) {
    const AttnShape shape{1, 70, 70, 2, 1, 32, 0, false, dtype};
    list.add(AttnFwd{shape, dtype, false}, "sharp", {.spread = 3});
    list.add(AttnBwd{shape, dtype, false, false}, "sharp", {.spread = 3});
  }
}

// Calls ops(add, shape) for every shape in every type.
template <size_t N, class F>
void for_each_type(List& list, const Attention (&shapes)[N], F ops) {
  for (Attention attention : shapes) {
    for (const DType dtype : kDTypes) {
      attention.shape.dtype = dtype;
      ops([&](Op op) { list.add(std::move(op), attention.note, {.documents = attention.documents}); },
          std::as_const(attention.shape));
    }
  }
}

// What AttnShape::window adds; apart, so that the other cases keep their numbers.
void add_windows(List& list) {
  const Attention shapes[] = {
      {{2, 33, 33, 4, 2, 32, 0, false, kF32, 1}, {}, "itself_only"},
      {{1, 129, 129, 4, 1, 64, 0, false, kF32, 40}, {}, ""},
      {{2, 200, 200, 2, 1, 16, 0, false, kF32, 64}, {}, "a_tile_wide"},
      {{1, 33, 33, 2, 2, 16, 0, false, kF32, 33}, {}, "hides_nothing"},
      {{1, 97, 97, 2, 1, 16, 0, true, kF32, 20}, {0, 5, 30, 41}, "documents"},
      {{1, 33, 33, 2, 1, 32, 33, false, kF32, 20}, {}, "next_block"},
      {{1, 150, 150, 2, 1, 16, 150, false, kF32, 200}, {}, "whole_then_cut"},
      {{1, 24, 24, 2, 1, 80, 24, true, kF32, 30}, {0, 10, 30, 40}, "documents_across"},
      {{1, 16, 16, 2, 1, 8, 48, false, kF32, 33}, {}, "nothing_visible"},
  };
  for_each_type(list, shapes, [](auto add, const AttnShape& shape) {
    add(AttnFwd{shape, shape.dtype, false});
    add(AttnFwd{shape, kF32, true});
    add(AttnBwd{shape, shape.dtype, false, false});
    add(AttnBwd{shape, kF32, true, true});
  });
}

// Sinks far below the scores, among them, and far above, where little is left of the values.
void add_sinks(List& list) {
  const Attention shapes[] = {
      {{2, 33, 33, 4, 2, 32, 0, false, kF32}, {}, "sinks"},
      {{1, 129, 129, 8, 1, 64, 0, false, kF32, 40}, {}, "sinks_window"},
      {{1, 97, 97, 2, 1, 16, 0, true, kF32}, {0, 5, 30, 41}, "sinks_documents"},
      {{1, 256, 256, 4, 2, 64, 0, false, kF32}, {}, "sinks_whole_tiles"},
      {{1, 70, 70, 2, 1, 256, 0, false, kF32}, {}, "sinks_heads_of_256"},
  };
  for (Attention attention : shapes) {
    for (const DType dtype : kDTypes) {
      attention.shape.dtype = dtype;
      const Data data{.documents = attention.documents};
      Data wide = data;
      wide.spread = 8;
      list.add(AttnFwd{attention.shape, dtype, false, true}, attention.note, data);
      list.add(AttnFwd{attention.shape, dtype, false, true}, std::string(attention.note) + "_wide", wide);
      if (dtype != kF32) list.add(AttnFwd{attention.shape, kF32, false, true}, attention.note, data);
    }
  }
  for (const DType dtype : kDTypes) {
    list.add(CachedAttention{1, 1, 700, 4, 1, 64, dtype, 0, 0, true}, "sinks");
    list.add(CachedAttention{5, 1, 90, 8, 2, 64, dtype, 20, 0, true}, "sinks");
    list.add(CachedAttention{3, 33, 300, 3, 1, 80, dtype, 20, 0.5f, true}, "sinks");
    list.add(CachedAttention{2, 9, 90, 2, 1, 256, dtype, 0, 0, true}, "sinks", {.spread = 8});
  }
  for (const auto [dtype, grad] : kGradDTypes) {
    for (const bool accumulate : {false, true}) {
      list.add(SinkGrad{1, 1, 1, 8, dtype, grad, accumulate});
      list.add(SinkGrad{2, 33, 4, 32, dtype, grad, accumulate});
      list.add(SinkGrad{1, 1000, 64, 64, dtype, grad, accumulate});
      list.add(SinkGrad{3, 70, 3, 256, dtype, grad, accumulate});
    }
  }
}

// Caps of scores and of logits, small ones that bend all they cap, and large ones that bend nothing.
void add_softcaps(List& list) {
  const Attention shapes[] = {
      {{2, 33, 33, 4, 2, 32, 0, false, kF32}, {}, "capped"},
      {{1, 129, 129, 4, 1, 64, 0, false, kF32, 40}, {}, "capped_window"},
      {{1, 97, 97, 2, 1, 16, 0, true, kF32}, {0, 5, 30, 41}, "capped_documents"},
      {{1, 150, 150, 2, 1, 16, 150, false, kF32}, {}, "capped_block_before"},
      {{1, 70, 70, 2, 1, 256, 0, false, kF32}, {}, "capped_heads_of_256"},
      {{1, 300, 300, 1, 1, 80, 0, false, kF32}, {}, "capped_heads_of_80"},
      {{1, 128, 128, 2, 1, 128, 0, false, kF32}, {}, "capped_whole_tiles"},
  };
  for (Attention attention : shapes) {
    for (const DType dtype : kDTypes) {
      for (const float cap : {0.5f, 50.0f}) {
        attention.shape.dtype = dtype;
        attention.shape.softcap = cap;
        const auto add = [&](Op op) {
          list.add(std::move(op), attention.note, {.documents = attention.documents});
        };
        add(AttnFwd{attention.shape, dtype, false});
        add(AttnFwd{attention.shape, kF32, true});
        add(AttnBwd{attention.shape, dtype, false, false});
        add(AttnBwd{attention.shape, kF32, true, true});
      }
    }
  }
  for (const DType dtype : kDTypes) {
    list.add(CachedAttention{1, 1, 700, 4, 1, 64, dtype, 0, 0.5f}, "capped");
    list.add(CachedAttention{3, 33, 300, 3, 1, 80, dtype, 20, 0.5f}, "capped");
    list.add(CachedAttention{2, 9, 90, 2, 1, 256, dtype, 0, 50}, "capped");
    list.add(LastLogits{5, 7, 72, 48, dtype, 1.5f}, "capped");
    for (const float cap : {1.5f, 30.0f}) {
      list.add(HeadLoss{9, 24, 40, 4, dtype, dtype, false, false, false, false, false, false, cap}, "capped",
               {.spread = 4, .ignored = 0.3});
      list.add(HeadLoss{9, 24, 1000, 4, dtype, kF32, true, true, false, false, false, false, cap}, "capped");
      list.add(HeadLoss{9, 24, 40, 4, dtype, dtype, false, false, true, false, false, false, cap}, "capped");
    }
  }
}

void add_wide_heads(List& list) {
  const Attention shapes[] = {
      {{1, 70, 70, 2, 1, 512, 0, false, kF32}, {}, "wide"},
      {{1, 40, 40, 2, 1, 512, 0, true, kF32}, {0, 7, 33}, "wide"},
      {{2, 70, 70, 1, 1, 272, 0, false, kF32}, {}, "wide_rows"},
      {{1, 100, 100, 1, 1, 384, 0, false, kF32, 30}, {}, "wide_window"},
      {{1, 70, 70, 2, 1, 512, 0, true, kF32, 20, 5}, {0, 5, 30, 41}, "wide_capped_documents"},
      {{1, 33, 70, 2, 1, 512, 70, false, kF32}, {}, "wide_block_before"},
      {{1, 33, 40, 2, 1, 320, 47, true, kF32}, {-2, 39, 60}, "wide_documents_across"},
  };
  for_each_type(list, shapes, [](auto add, const AttnShape& shape) {
    add(AttnFwd{shape, shape.dtype, false});
    add(AttnFwd{shape, kF32, true});
    add(AttnBwd{shape, kF32, true, false});
    add(AttnBwd{shape, shape.dtype, false, false});
  });
  for (const DType dtype : kDTypes) {
    list.add(CachedAttention{2, 3, 40, 4, 2, 512, dtype}, "wide");
    list.add(CachedAttention{1, 1, 200, 8, 1, 512, dtype}, "wide");
    list.add(CachedAttention{2, 33, 300, 3, 1, 320, dtype, 20, 0.5f, true}, "wide");
  }
}

// Of several tiles, whatever their sizes, in heads of every width; and so many scores that TF32 shows.
void add_long_attention(List& list) {
  for (AttnShape shape : {AttnShape{1, 200, 200, 2, 1, 32, 0, false, kF32},
                          {1, 300, 300, 4, 2, 64, 0, false, kF32},
                          {1, 270, 270, 2, 1, 80, 0, false, kF32},
                          {1, 200, 200, 2, 2, 128, 0, false, kF32},
                          {1, 140, 200, 2, 1, 64, 200, false, kF32, 230}}) {
    list.add(AttnFwd{shape, kF32, false});
    list.add(AttnBwd{shape, kF32, false, false});
  }
}

}  // namespace sluice::core::conformance
