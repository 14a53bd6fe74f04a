// The message that a rank left in its TORCHELASTIC_ERROR_FILE, in either of torchrun's schemas:
//   {"message": {"message": "Type: text", "extraInfo": {…}}}  and  {"message": "text", "timestamp": …}
// Anything else, a file that is too large included, counts as no message: it must not hide the failure itself.
#pragma once

#include <string>

namespace cxxrun {

std::string read_error_file(const std::string& path);

}  // namespace cxxrun
