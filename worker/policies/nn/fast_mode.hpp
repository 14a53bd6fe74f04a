// Which arithmetic the blocks of policies use: the reference's own operations, or kernels that do the same in fewer passes over memory
// and round elsewhere (speed.mode). One switch for the process, like TF32's: backward and recomputation run on threads of their own.
#pragma once

namespace vla {

bool fast_mode();  // false unless set
void set_fast_mode(bool on);

// Sets it while it lives.
class FastModeScope {
 public:
  explicit FastModeScope(bool on) : before_(fast_mode()) { set_fast_mode(on); }
  FastModeScope(const FastModeScope&) = delete;
  FastModeScope& operator=(const FastModeScope&) = delete;
  ~FastModeScope() { set_fast_mode(before_); }

 private:
  bool before_;
};

}  // namespace vla
