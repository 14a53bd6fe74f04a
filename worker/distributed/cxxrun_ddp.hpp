// Everything of cxxrun::ddp: #include <cxxrun/ddp.hpp>. Its headers need LibTorch alone; NCCL and Gloo stay inside the library.
#pragma once

#include "worker/distributed/ddp.hpp"
#include "worker/distributed/process_group.hpp"
