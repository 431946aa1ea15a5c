// SPDX-License-Identifier: Apache-2.0
#include "records/expander.h"

namespace sluice::core {

Result<std::unique_ptr<Expander>> make_zstd_expander() {
  return error(ErrorKind::NotFound,
               "this Sluice was built without libzstd; apt-get install libzstd-dev and build it again, or "
               "unpack the file "
               "with unzstd");
}

}  // namespace sluice::core
