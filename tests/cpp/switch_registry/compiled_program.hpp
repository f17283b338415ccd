// Programs of tests/c_programs, compiled as Loomnet compiles a user's C file, and made known by name.
#pragma once

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "switch/loaded/loaded_kind.hpp"
#include "switch/registry/registry.hpp"

namespace loomnet::test {

inline std::vector<std::uint8_t> content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A folder that goes with the process, with <loomnet/switch_program.h> in its folder include.
class CompiledPrograms {
 public:
  CompiledPrograms() {
    char name[] = "/tmp/loomnet-compiled-XXXXXX";
    if (!::mkdtemp(name)) throw std::runtime_error("mkdtemp");
    folder_ = name;
    const auto tree = std::filesystem::path(__FILE__).parent_path() / "../../..";
    programs_ = tree / "tests/c_programs";
    std::filesystem::create_directory(folder_ / "include");
    std::filesystem::create_directory_symlink(std::filesystem::canonical(tree / "ebpf"), folder_ / "include/loomnet");
  }
  ~CompiledPrograms() { std::filesystem::remove_all(folder_); }

  // tests/c_programs/NAME.c under the name "NAME.c".
  const ProgramKind& kind(const std::string& name, bool kernel = false) {
    auto program = std::make_unique<LoadedProgram>();
    program->name = program->file = name + ".c";
    const auto object = folder_ / (name + ".so");
    run("cc -std=gnu11 -O2 -fPIC -shared -fvisibility=hidden -fno-strict-aliasing -fwrapv", name, object);
    read_facts(content(object), *program);
    program->load(object.string());
    const ProgramKind& kind = add_program(std::move(program));
    if (kernel) {
      const auto built = folder_ / (name + ".bpf.o");
      run("clang -target bpf -std=gnu11 -O2 -g -idirafter /usr/include/$(uname -m)-linux-gnu -c", name, built);
      set_kernel_object(name + ".c", content(built));
    }
    return kind;
  }

 private:
  // As struct ln_fact_ of ebpf/switch_program.h.
  struct Fact {
    char kind[16];
    char name[64];
    char text[128];
    std::int64_t numbers[4];
  };

  void run(const std::string& compiler, const std::string& name, const std::filesystem::path& out) const {
    const std::string command = compiler + " -I" + (folder_ / "include").string() + " -o " + out.string() + " " +
                                (programs_ / (name + ".c")).string();
    if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
  }
  static void read_facts(const std::vector<std::uint8_t>& object, LoadedProgram& program) {
    static constexpr std::string_view kMagic = "LOOMNET-SWITCH";
    const std::string_view text(reinterpret_cast<const char*>(object.data()), object.size());
    for (std::size_t at = text.find(kMagic); at + sizeof(Fact) <= text.size(); at += sizeof(Fact)) {
      Fact fact;
      std::memcpy(&fact, text.data() + at, sizeof fact);
      const std::string_view kind = fact.kind;
      const auto number = [&](int i) { return static_cast<std::uint32_t>(fact.numbers[i]); };
      if (kind == "counter") program.counters.emplace_back(fact.name);
      if (kind == "option") {
        program.options.push_back({fact.name, fact.text, fact.numbers[0], fact.numbers[1], fact.numbers[2]});
      }
      if (kind == "number" || kind == "bytes") {
        program.fields.push_back({fact.name, number(0), number(1), kind == "number"});
      }
      if (kind == "payload") program.payload_at = number(0), program.payload_bytes = number(1);
      if (kind == "rows") program.rows = number(0), program.row_bytes = number(1);
      if (kind == "end") return;
    }
    throw std::runtime_error("no facts in the object");
  }

  std::filesystem::path folder_, programs_;
};

// One folder for all tests of a process.
inline CompiledPrograms& compiled_programs() {
  static CompiledPrograms all;
  return all;
}

}  // namespace loomnet::test
