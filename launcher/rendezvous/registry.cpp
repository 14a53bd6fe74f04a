#include "common/registry.hpp"
#include "launcher/rendezvous/dynamic_rendezvous.hpp"
#include "launcher/rendezvous/rendezvous.hpp"
#include "launcher/rendezvous/single_node.hpp"
#include "launcher/rendezvous/static_rendezvous.hpp"

namespace cxxrun {
namespace {

template <class T>
std::unique_ptr<Rendezvous> make(RendezvousOptions options) {
  return std::make_unique<T>(std::move(options));
}

constexpr RendezvousRow kRendezvous[] = {
    {"single_node", "one node; a fresh store for every attempt", &make<SingleNode>},
    {"static", "a fixed number of nodes that know node 0's address and port", &make<StaticRendezvous>},
    {"c10d", "nodes that meet at an end point, and may come and go within limits", &make<DynamicRendezvous>},
};

}  // namespace

std::span<const RendezvousRow> rendezvous_table() { return kRendezvous; }

std::unique_ptr<Rendezvous> make_rendezvous(std::string_view name, RendezvousOptions options) {
  return find_in_registry(rendezvous_table(), name, "rendezvous").make(std::move(options));
}

}  // namespace cxxrun
