#include "launcher/options/usage_text.hpp"

#include <algorithm>
#include <sstream>
#include <vector>

#include "common/error.hpp"
#include "launcher/options/option_values.hpp"

namespace cxxrun {
namespace {

// Every long spelling, with the choices of those that have them.
struct Word {
  std::string option;
  std::string choices;  // "a b"
};

std::vector<Word> words() {
  std::vector<Word> result;
  for (const OptionSpec& spec : option_specs()) {
    std::string choices(spec.choices);
    std::replace(choices.begin(), choices.end(), ',', ' ');
    result.push_back({"--" + std::string(spec.name), choices});
  }
  return result;
}

std::string bash_completion() {
  std::string options, cases;
  for (const Word& word : words()) {
    options += word.option + " ";
    if (!word.choices.empty()) {
      cases += fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")); return ;;\n", word.option, word.choices);
    }
  }
  return fmt::format(R"(_cxxrun() {{
  local word=${{COMP_WORDS[COMP_CWORD]}}
  case ${{COMP_WORDS[COMP_CWORD - 1]}} in
{}  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "{}" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word") $(compgen -c -- "$word"))
  fi
}}
complete -o filenames -F _cxxrun cxxrun cxxlaunch
)",
                     cases, options);
}

std::string tcsh_completion() {
  std::string options, cases;
  for (const Word& word : words()) {
    options += word.option.substr(2) + " ";
    if (!word.choices.empty()) cases += fmt::format(" 'n/{}/({})/'", word.option, word.choices);
  }
  return fmt::format("complete cxxrun{} 'c/--/({})/' 'p/*/f/'\n", cases, options);
}

}  // namespace

std::string help_text() {
  std::ostringstream text;
  text << "cxxrun starts a program N times, one rank per GPU or CPU, with the environment that torchrun gives.\n\n"
          "  cxxrun [options] PROGRAM [its arguments]\n\n"
          "PROGRAM is a native executable or a Python script. Examples:\n"
          "  cxxrun --nproc_per_node=2 vla_worker --config configs/act_demo.yaml\n"
          "  cxxrun --nproc_per_node=gpu --max_restarts=3 train.py --lr 1e-4\n"
          "  cxxrun --nnodes=2 --node_rank=0 --master_addr=10.0.0.1 --nproc_per_node=8 train.py     (and node_rank=1 "
          "on the other)\n"
          "  cxxrun --dry-run --nproc_per_node=2 train.py                                           (show what would "
          "be started)\n\n"
       << option_descriptions()
       << "\nEvery option of torchrun can also come from PET_<NAME>, for example PET_NPROC_PER_NODE=2.\n"
          "Exit code: 0 if all ranks return 0, else that of the rank that failed first (128+n for signal n); 128+n "
          "when cxxrun is\n"
          "stopped by signal n; 2 for wrong usage.\n";
  return text.str();
}

std::string completion_script(const std::string& shell) {
  if (shell == "tcsh") return tcsh_completion();
  if (shell == "zsh") return "autoload -U +X bashcompinit && bashcompinit\n" + bash_completion();
  return bash_completion();
}

}  // namespace cxxrun
