// SPDX-License-Identifier: Apache-2.0
#include "records/expander.h"

namespace sluice::core {

Result<std::unique_ptr<Expander>> make_gzip_expander() {
  return error(
      ErrorKind::NotFound,
      "this Sluice was built without zlib; apt-get install zlib1g-dev and build it again, or unpack the file "
      "with gunzip");
}

}  // namespace sluice::core
