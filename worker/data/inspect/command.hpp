// `vla_worker data VERB …`: looks at datasets without training on them. Each verb parses its own options, prints to `out` and
// returns the exit code; progress goes to stderr. Needs no Torch. Throws UsageError for wrong options, DataError for data that
// cannot be read.
#pragma once

#include <ostream>
#include <span>
#include <string>

namespace vla::data {

using Arguments = std::span<const std::string>;

int run_data_command(Arguments arguments, std::ostream& out);

int sample_command(Arguments arguments, std::ostream& out);
int check_command(Arguments arguments, std::ostream& out);
int view_command(Arguments arguments, std::ostream& out);
int merge_command(Arguments arguments, std::ostream& out);
int convert_command(Arguments arguments, std::ostream& out);

}  // namespace vla::data
