// Fills of a captured graph as kernels. A graph runs memset nodes, of which libraries' products have many, by another way than kernels: several
// microseconds before and after each, where the graph has branches.
#pragma once

#include <cuda_runtime_api.h>

namespace vla {

// Replaces the memset nodes of one dimension in `graph`, which must not be instantiated yet.
cudaError_t replace_memsets(cudaGraph_t graph);

}  // namespace vla
