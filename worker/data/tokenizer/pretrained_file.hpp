// Files of pretrained models by folder or by name in the Hugging Face cache, which is only read: nothing is downloaded.
#pragma once

#include <string>

namespace vla::data {

// `file` in the folder `name_or_path`, else in the cache's snapshot of the model of that name: the one of its branch main, else the newest
// that has the file. Throws UsageError naming every place looked at and the command that downloads it.
std::string find_pretrained_file(const std::string& name_or_path, const std::string& file);

}  // namespace vla::data
