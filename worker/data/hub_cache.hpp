// Pretrained models and datasets by folder or by their name in the caches of Hugging Face and LeRobot, which are only read: nothing is
// downloaded.
#pragma once

#include <string>

namespace vla::data {

// `file` in the folder `name_or_path`, else in the cache's snapshot of the model of that name: the one of its branch main, else the newest
// that has the file. Throws UsageError naming every place looked at and the command that downloads it.
std::string find_pretrained_file(const std::string& name_or_path, const std::string& file);

// The folder `name_or_path`, else the dataset of that name below HF_LEROBOT_HOME, else its newest snapshot among LeRobot's downloads.
// Throws UsageError as find_pretrained_file() does.
std::string find_dataset_folder(const std::string& name_or_path);

}  // namespace vla::data
