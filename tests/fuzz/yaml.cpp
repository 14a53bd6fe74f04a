// Configurations: any text is settings, or a UsageError.
#include "common/error.hpp"
#include "common/yaml_config.hpp"
#include "tests/common/sample_options.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cxxrun;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    SampleOptions options;
    OptionTable table;
    options.describe(table);
    for (const Setting& setting : parse_yaml_settings(text, "fuzz.yaml")) {
      try {
        apply_setting(table, setting);
      } catch (const UsageError&) {
      }
    }
  } catch (const UsageError&) {
  }
  return 0;
}
