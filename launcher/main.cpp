#include "launcher/launch.hpp"

int main(int argc, char** argv) { return cxxrun::run_cxxrun({argv + 1, argv + argc}); }
