// SPDX-License-Identifier: Apache-2.0
// The library's values and handles, for Python. Errors become sluice.Error. Whatever takes longer than a
// moment runs without the interpreter's lock.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <sluice/sluice.h>

#include "base/bytes.h"
#include "base/printable.h"
#include "config/aliases.h"
#include "config/config.h"
#include "objective/distillation.h"
#include "objective/policy.h"
#include "version/version.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// Makes it Python's. What others wrote is printable there: a traceback shows it on a terminal.
void set_error(const sluice::Error& e) {
  nb::dict details;
  for (const auto& [name, value] : e.details)
    details[nb::str(name.c_str())] = nb::str(sluice::core::printable_message(value).c_str());
  const nb::object type = nb::module_::import_("sluice._errors").attr("Error");
  const std::string_view kind = sluice::name_of(e.kind);
  nb::dict shortage;
  if (const auto& s = e.shortage)
    shortage["tier"] = s->tier, shortage["given"] = s->given_bytes, shortage["need"] = s->need_bytes;
  const nb::object error = type(sluice::core::printable_message(e.message), nb::str(kind.data(), kind.size()),
                                details, **shortage);
  PyErr_SetObject(type.ptr(), error.ptr());
}

[[noreturn]] void raise(const sluice::Error& e) {
  set_error(e);
  throw nb::python_error();
}

// Translates a refusal of the system to the C++ library, as to one of its threads.
void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::system_error& e) {
    const bool few = e.code() == std::errc::resource_unavailable_try_again;
    set_error(
        {few ? "no thread can be made: the limit on processes (ulimit -u, pids.max) is reached" : e.what(),
         sluice::ErrorKind::Device,
         {}});
  }
}

template <class T>
T value(sluice::Result<T> result) {
  if (!result.ok()) raise(result.error());
  return std::move(*result);
}

void check(const sluice::Status& status) {
  if (!status.ok()) raise(status.error());
}

// The path of a str, or of an object that has one. Asked for here, because the binding would turn an
// interrupt meanwhile into a TypeError about arguments.
std::filesystem::path path_of(const nb::object& named) {
  return nb::cast<std::string>(nb::module_::import_("os").attr("fsdecode")(named));
}
#define SLUICE_PATH "str | os.PathLike[str]"

// Calls the library without the interpreter's lock.
template <class F>
auto unlocked(F&& f) {
  nb::gil_scoped_release release;
  return f();
}

// The same on a thread of its own, while this one looks for Ctrl-C: then `f` is asked to stop, and when it
// has, the interrupt is raised.
template <class F>
auto interruptible(F&& f) {
  constexpr std::chrono::milliseconds kPause{20};
  std::stop_source stop;
  std::packaged_task task([&] { return f(stop.get_token()); });
  auto result = task.get_future();
  std::jthread worker(std::move(task));
  std::exception_ptr raised;
  {
    const nb::gil_scoped_release release;
    while (result.wait_for(kPause) != std::future_status::ready) {
      if (raised) continue;
      const nb::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() == 0) continue;
      raised = std::make_exception_ptr(nb::python_error());
      stop.request_stop();
    }
  }
  if (raised) std::rethrow_exception(raised);
  return result.get();
}

// As Python's warnings, of which its filters may make errors.
void warn(const std::vector<std::string>& notices) {
  for (const std::string& notice : notices) {
    const std::string text = sluice::core::printable_message(notice);
    if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) != 0) throw nb::python_error();
  }
}

// Tells a callable how far something is, on the library's thread, and Python's warnings what was noticed, on
// the caller's when the library has returned. What these raise is raised then.
class Told : public sluice::Observer {
 public:
  explicit Told(nb::object progress) : progress_(std::move(progress)) {}

  void progress(const sluice::Progress& p) override {
    if (progress_.is_none()) return;
    hold([&] { progress_(nb::str(p.what.data(), p.what.size()), p.done, p.total); });
  }
  void warned(const std::string& what) override {
    const std::lock_guard lock(mutex_);
    warnings_.push_back(what);
  }
  void raise_held() const {
    if (raised_) std::rethrow_exception(raised_);
    warn(warnings_);
  }

 private:
  template <class F>
  void hold(F&& f) {
    if (raised_) return;
    nb::gil_scoped_acquire acquire;
    try {
      f();
    } catch (...) {
      raised_ = std::current_exception();
    }
  }

  nb::object progress_;
  std::exception_ptr raised_;
  std::mutex mutex_;
  std::vector<std::string> warnings_;
};

// The rows of the configuration's table, for python/sluice/_options.py.
nb::list keys() {
  constexpr const char* kOf[] = {"run", "step", "data"};
  nb::list out;
  for (const sluice::core::KeyHelp& key : sluice::core::config_keys()) {
    nb::dict row;
    row["name"] = key.name;
    row["value"] = key.value;
    row["meaning"] = key.meaning;
    row["allowed"] = key.allowed;
    row["of"] = kOf[size_t(key.of)];
    out.append(row);
  }
  return out;
}

sluice::Plan plan(const sluice::Model& model, const sluice::Machine& machine, std::optional<int64_t> device,
                  std::optional<int64_t> host, const std::vector<std::string>& settings,
                  const std::map<std::string, double>& hyperparameters, bool packed, bool weighted,
                  bool log_probabilities, bool round_losses, int64_t top_tokens, bool evaluate,
                  int64_t sample_window, int64_t sample_rows, nb::object progress) {
  sluice::StepOptions o;
  o.settings = settings;
  o.hyperparameters = hyperparameters;
  o.packed = packed;
  o.weighted = weighted;
  o.log_probabilities = log_probabilities;
  o.round_losses = round_losses;
  o.top_tokens = top_tokens;
  o.evaluate = evaluate;
  o.sample_window = sample_window;
  o.sample_rows = sample_rows;
  Told told(std::move(progress));
  auto found = interruptible([&](const std::stop_token& stop) {
    return sluice::plan(model, o, {device, host}, machine, told, stop);
  });
  told.raise_held();
  return value(std::move(found));
}

// Rows of token ids, one sequence after another.
using Ids = nb::ndarray<const int32_t, nb::c_contig, nb::device::cpu>;

std::span<const int32_t> ids_of(const Ids& array) {
  return {array.data(), array.size()};
}

using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
// A result of the library, in memory that Python owns.
template <class T>
using Found = nb::ndarray<nb::numpy, T>;

std::span<const float> floats_of(const std::optional<Floats>& array) {
  return array ? std::span<const float>(array->data(), array->size()) : std::span<const float>();
}

sluice::Batch batch_of(const Ids& tokens, const Ids& targets, const std::optional<Ids>& positions,
                       const std::optional<Floats>& weights = {}, const std::optional<Floats>& seeds = {},
                       const std::optional<Ids>& top_tokens = {}) {
  const auto ids = [](const std::optional<Ids>& array) {
    return array ? ids_of(*array) : std::span<const int32_t>();
  };
  return {ids_of(tokens),     ids_of(targets),  ids(positions),
          floats_of(weights), floats_of(seeds), ids(top_tokens)};
}

// REQUIRES: as many values as the shape has.
template <class T>
Found<T> found(std::vector<T> values, const std::vector<size_t>& shape) {
  auto* const kept = new std::vector<T>(std::move(values));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Found<T>(kept->data(), shape.size(), shape.data(), owner);
}

std::vector<size_t> shape_of(const Ids& array) {
  std::vector<size_t> shape;
  for (size_t i = 0; i < array.ndim(); ++i) shape.push_back(array.shape(i));
  return shape;
}

// Calls of a session, one at a time. A call that comes while one is under way is refused, be it another
// thread's or that of a loss which the call itself calls.
class Calls {
 public:
  class Entered {
   public:
    explicit Entered(std::atomic<bool>& busy) : busy_(busy) {}
    ~Entered() { busy_ = false; }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    std::atomic<bool>& busy_;
  };
  Entered enter() {
    if (busy_.exchange(true))
      raise({"session: another call of it is under way", sluice::ErrorKind::Invalid, {}});
    return Entered(busy_);
  }

 private:
  std::atomic<bool> busy_ = false;
};

// Python's loss of a round's rows: called with their log-probabilities, their targets and the number of
// tokens before them, it returns its derivatives. It may be called, and may end, wherever the interpreter's
// lock is not held. What it raises is left in `raised`.
class AskedInPython {
 public:
  AskedInPython(nb::object loss, std::shared_ptr<std::exception_ptr> raised)
      : loss_(std::move(loss)), raised_(std::move(raised)) {}
  ~AskedInPython() {
    const nb::gil_scoped_acquire acquire;
    forget();
  }
  // For Python's collector, which breaks cycles: a loss may refer to the session that it waits in.
  PyObject* loss() const { return loss_.ptr(); }
  void forget() { loss_.reset(); }
  AskedInPython(const AskedInPython&) = delete;
  AskedInPython& operator=(const AskedInPython&) = delete;

  sluice::Status operator()(const sluice::RoundRows& rows, std::span<float> seeds) const {
    const nb::gil_scoped_acquire acquire;
    try {
      // Where there are others beside targets, a target's log-probability and theirs make a row.
      const size_t targets = rows.targets.size(), top = seeds.size() / targets - 1;
      const auto place = [&](size_t target, size_t i) {
        return i == 0 ? target : targets + target * top + i - 1;
      };
      std::vector<float> now(seeds.size());
      for (size_t t = 0; t < targets; ++t) {
        now[t * (1 + top)] = rows.log_probabilities[t];
        for (size_t i = 0; i < top; ++i) now[t * (1 + top) + 1 + i] = rows.top_log_probabilities[t * top + i];
      }
      const std::vector<size_t> shape{targets, 1 + top};
      const auto log_probs = top > 0 ? found(std::move(now), shape) : found(std::move(now), {targets});
      const auto made = nb::cast<Floats>(loss_(
          log_probs, found(std::vector(rows.targets.begin(), rows.targets.end()), {targets}), rows.first));
      if (made.size() != seeds.size())
        throw nb::value_error("loss: as many derivatives as log-probabilities are needed");
      for (size_t t = 0; t < targets; ++t) {
        for (size_t i = 0; i <= top; ++i) seeds[place(t, i)] = made.data()[t * (1 + top) + i];
      }
      return {};
    } catch (...) {
      *raised_ = std::current_exception();
    }
    return sluice::Error{"the loss raised", sluice::ErrorKind::Invalid, {}};
  }

 private:
  nb::object loss_;
  const std::shared_ptr<std::exception_ptr> raised_;
};

// The result of forward_backward(), with the shape of what it was given, and its session's calls.
struct Waiting {
  sluice::Queued queued;
  std::vector<size_t> shape;
  std::shared_ptr<Calls> calls;
};

// A session until it is closed. Python's threads may call it at the same time; one that comes while another
// is in a call is refused. A process that was forked has none of its threads: there it is refused, too, and
// its memory is left to the end of the process.
class Held {
 public:
  explicit Held(sluice::Session session)
      : session_(std::make_unique<sluice::Session>(std::move(session))), process_(::getpid()) {}
  ~Held() { forget_in_fork(); }

  template <class F>
  auto use(F&& f) {
    const Calls::Entered entered = calls_->enter();
    sluice::Session& session = open();
    return unlocked([&] { return f(session); });
  }
  template <class F>
  auto use_interruptible(F&& f) {
    const Calls::Entered entered = calls_->enter();
    sluice::Session& session = open();
    return interruptible([&](const std::stop_token& stop) { return f(session, stop); });
  }
  // The same where losses of Python's may be called: what one raised is raised.
  template <class F>
  auto use_asking(F&& f) {
    auto result = use(std::forward<F>(f));
    if (const std::exception_ptr raised = std::exchange(*raised_, nullptr)) std::rethrow_exception(raised);
    return result;
  }
  sluice::RoundLoss asking(nb::object loss) {
    auto asked = std::make_shared<AskedInPython>(std::move(loss), raised_);
    std::erase_if(asked_, [](const auto& gone) { return gone.expired(); });
    asked_.push_back(asked);
    return [asked = std::move(asked)](const sluice::RoundRows& rows, std::span<float> seeds) {
      return (*asked)(rows, seeds);
    };
  }
  // Called by Python's collector, which holds the interpreter's lock.
  int visit_losses(visitproc visit, void* arg) const {
    for (const auto& weak : asked_) {
      if (const auto asked = weak.lock()) Py_VISIT(asked->loss());
    }
    return 0;
  }
  void forget_losses() {
    for (const auto& weak : asked_) {
      if (const auto asked = weak.lock()) asked->forget();
    }
  }
  const std::shared_ptr<Calls>& calls() const { return calls_; }
  void close() {
    const Calls::Entered entered = calls_->enter();
    forget_in_fork();
    unlocked([&] { session_.reset(); });
  }

 private:
  sluice::Session& open() {
    if (::getpid() != process_) {
      raise({"session: process " + std::to_string(process_) + " opened it; a fork of that cannot use it",
             sluice::ErrorKind::Invalid,
             {}});
    }
    if (!session_) raise({"session: it is closed", sluice::ErrorKind::Invalid, {}});
    return *session_;
  }
  void forget_in_fork() {
    if (::getpid() != process_) (void)session_.release();
  }

  const std::shared_ptr<std::exception_ptr> raised_ = std::make_shared<std::exception_ptr>();
  const std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();
  std::vector<std::weak_ptr<AskedInPython>> asked_;  // those that the session holds
  std::unique_ptr<sluice::Session> session_;
  const pid_t process_;
};

// The type's part in collecting cycles. An object of it may be there before what it holds.
int visit_session(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Held>(self)->visit_losses(visit, arg) : 0;
}
int clear_session(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Held>(self)->forget_losses();
  return 0;
}
PyType_Slot kSessionSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(visit_session)},
                               {Py_tp_clear, reinterpret_cast<void*>(clear_session)},
                               {0, nullptr}};

// A tensor of the model's, in its shape; what has a number for each of its rows or columns alone, as a row.
Found<float> tensor(Held& of, std::string_view name, sluice::Result<std::vector<float>> read) {
  std::vector<float> values = value(std::move(read));
  std::vector<size_t> shape;
  for (const auto& w : of.use([](sluice::Session& s) { return s.weights(); })) {
    if (w.name == name) shape.assign(w.shape.begin(), w.shape.end());
  }
  size_t elements = 1;
  for (const size_t size : shape) elements *= size;
  if (elements != values.size()) shape = {values.size()};
  return found(std::move(values), shape);
}

// Advantages of rewards, of which each prompt has `group`.
std::vector<double> advantages(const std::vector<std::string>& settings, const std::vector<double>& rewards,
                               int64_t group) {
  const sluice::core::RunConfig config = value(sluice::core::typed_config(settings));
  const std::vector<int64_t> groups(group == 0 ? 0 : rewards.size() / size_t(group), group);
  return sluice::core::advantages_of(config.objective.scale_rewards, rewards, groups).values;
}

// The divergence of rows from a teacher's, and its derivatives, over `tokens`. `log_probs` and `teacher` have
// the teacher's tokens of each target that counts.
std::tuple<double, Found<float>, std::map<std::string, double>> distillation_loss(
    const std::vector<std::string>& settings, const Floats& log_probs, const Floats& teacher, double tokens) {
  using namespace sluice::core;
  const RunConfig config = value(typed_config(settings));
  const ObjectiveKeys keys = with_defaults(config.chosen_objective(), config.objective);
  const size_t top = log_probs.shape(1), count = log_probs.shape(0);
  std::vector<float> seeds(count * top);
  double loss = 0, teacher_mass = 0, model_mass = 0;
  for (size_t t = 0; t < count; ++t) {
    const auto part = [&](std::span<const float> of) { return of.subspan(t * top, top); };
    const std::span<float> slopes = std::span(seeds).subspan(t * top, top);
    const Divergence d = divergence_of(keys, {part(floats_of(teacher)), part(floats_of(log_probs))}, slopes);
    loss += d.value, teacher_mass += d.teacher_mass, model_mass += d.model_mass;
    for (float& slope : slopes) slope = float(double{slope} / tokens);
  }
  const double seen = std::max<double>(1, double(count));
  return {loss / tokens,
          found(std::move(seeds), {count, top}),
          {{"top_k_mass/teacher", teacher_mass / seen}, {"top_k_mass/model", model_mass / seen}}};
}

// The loss of rows, their derivatives, and what else there is to say of them. `answers`: the number of each
// token's answer, -1: it does not count; answers stand one behind the other.
std::tuple<double, Found<float>, std::map<std::string, double>> policy_loss(
    const std::vector<std::string>& settings, const Floats& log_probs, const Ids& answers,
    const Floats& advantages, const std::optional<Floats>& old, const std::optional<Floats>& reference,
    double answers_of_all, double tokens_of_all) {
  using namespace sluice::core;
  const RunConfig config = value(typed_config(settings));
  const Objective& objective = config.chosen_objective();
  const ObjectiveKeys keys = with_defaults(objective, config.objective);
  const LossType& loss = loss_type_of(objective, keys);
  const PolicyCounts counts{answers_of_all, tokens_of_all, double(config.rollout.max_tokens)};
  std::vector<float> seeds(answers.size());
  PolicySums sums;
  std::vector<size_t> tokens;
  const auto judge = [&] {
    const auto part = [&](std::span<const float> of) {
      std::vector<float> out;
      for (const size_t t : tokens) out.push_back(of.empty() ? 0 : of[t]);
      return out;
    };
    const std::vector<float> now = part(floats_of(log_probs)), by = part(floats_of(advantages)),
                             before = part(floats_of(old)), start = part(floats_of(reference));
    SampledAnswer answer{.log_probs = now, .advantages = by};
    if (old) answer.old = before;
    if (reference) answer.reference = start;
    std::vector<float> slopes(tokens.size());
    sums.add(judge_answer(loss, keys, answer, counts, slopes));
    for (size_t i = 0; i < tokens.size(); ++i) seeds[tokens[i]] = slopes[i];
    tokens.clear();
  };
  const auto ids = ids_of(answers);
  for (size_t t = 0; t < ids.size(); ++t) {
    if (ids[t] < 0) continue;
    if (!tokens.empty() && ids[tokens.front()] != ids[t]) judge();
    tokens.push_back(t);
  }
  if (!tokens.empty()) judge();
  std::map<std::string, double> said;
  for (const auto& [name, share] : metrics_of(loss, keys, sums)) said.emplace(name, share);
  return {sums.loss, found(std::move(seeds), shape_of(answers)), std::move(said)};
}

// Calls a function of the package's, where what is better written in Python is.
template <class... Args>
nb::object in_python(const char* module, const char* function, Args&&... args) {
  return nb::module_::import_(module).attr(function)(std::forward<Args>(args)...);
}

void add_model(nb::module_& m) {
  using sluice::Model;
  nb::class_<Model>(m, "Model", "What is trained: an architecture, and where its weights come from.")
      .def_static(
          "preset", [](std::string_view name) { return value(Model::preset(name)); }, "name"_a,
          "A shape by its name, \"llama3-8b\"; weights are random.")
      .def_static(
          "config", [](std::string_view json) { return value(Model::from_config(json)); }, "json"_a,
          "From the text of a Hugging Face config.json; weights are random.")
      .def_static(
          "from_pretrained",
          [](const nb::object& directory) { return value(Model::from_pretrained(path_of(directory))); },
          "directory"_a, nb::sig("def from_pretrained(directory: " SLUICE_PATH ") -> Model"),
          "From a folder with config.json and safetensors.")
      .def_prop_ro("family", &Model::family)
      .def_prop_ro("parameters", &Model::parameters)
      .def_prop_ro("vocabulary", &Model::vocabulary)
      .def_prop_ro("layers", &Model::layers)
      .def_prop_ro("width", &Model::width)
      .def_prop_ro("notices", &Model::notices, "What the author of its config.json should know.")
      .def("json", &Model::config, "The text of a config.json.")
      .def("__repr__", [](const Model& of) {
        return "<sluice.Model " + of.family() + ", " + std::to_string(of.layers()) + " layers x " +
               std::to_string(of.width()) + ", " + std::to_string(of.parameters()) + " parameters>";
      });
}

void add_machine(nb::module_& m) {
  using sluice::Machine;
  nb::class_<Machine>(m, "Machine", "What runs the steps: this machine, or one that is only planned for.")
      .def_static(
          "here",
          [](const std::string& backend, int device, const std::string& devices, bool peer_copies,
             int threads, bool deterministic, bool exact, const nb::object& cache) {
            const auto folder = cache.is_none() ? std::filesystem::path() : path_of(cache);
            return value(unlocked([&] {
              return Machine::here(
                  {backend, device, devices, peer_copies, threads, deterministic, exact, folder});
            }));
          },
          nb::kw_only(), "backend"_a = "auto", "device"_a = 0, "devices"_a = "1", "peer_copies"_a = true,
          "threads"_a = 0, "deterministic"_a = false, "exact"_a = false, "cache"_a.none() = nb::none(),
          nb::sig("def here(*, backend: str = 'auto', device: int = 0, devices: str = '1', "
                  "peer_copies: bool = True, threads: int = 0, deterministic: bool = False, "
                  "exact: bool = False, cache: " SLUICE_PATH " | None = None) -> Machine"),
          "Looks at the hardware; takes none of its memory. The folder `cache` keeps measured costs and "
          "plans.")
      .def_static(
          "preset", [](std::string_view name, int devices) { return value(Machine::preset(name, devices)); },
          "name"_a, "devices"_a = 1,
          "One that need not be there, by its name or as a machine file, \"mine.toml\".")
      .def_static("presets", &Machine::presets, "The names of all presets.")
      .def_prop_ro("description", &Machine::description)
      .def_prop_ro("device_bytes", &Machine::device_bytes, "That a device has to give; -1: unknown.")
      .def_prop_ro("devices", &Machine::devices, "That share a step.")
      .def_prop_ro("runs_models", &Machine::runs_models, "Whether a Session can open here.")
      .def("__repr__", [](const Machine& of) { return "<sluice.Machine " + of.description() + ">"; });
}

void add_plan(nb::module_& m) {
  using sluice::Plan;
  nb::class_<Plan>(m, "Plan",
                   "How a step runs under caps: searched, proved and explained before memory is taken.")
      .def_prop_ro("step_seconds", &Plan::step_seconds, "Predicted.")
      .def_prop_ro("tokens_per_second", &Plan::tokens_per_second)
      .def_prop_ro("mfu", &Plan::mfu, "Model FLOPs over those of the machine's fastest product; 0: unknown.")
      .def_prop_ro("device_bytes", &Plan::device_bytes, "Of the arena that a Session takes.")
      .def_prop_ro("host_bytes", &Plan::host_bytes, "Of the arena that a Session takes.")
      .def_prop_ro("seq_len", &Plan::seq_len)
      .def_prop_ro("tokens_per_step", &Plan::tokens_per_step)
      .def_prop_ro("packed", &Plan::packed)
      .def_prop_ro("notices", &Plan::notices, "What should be known of its model, caps and steps.")
      .def(
          "under",
          [](const Plan& of, std::optional<int64_t> device, std::optional<int64_t> host) {
            return value(interruptible([&](const std::stop_token& stop) {
              return of.under({device, host}, stop);
            }));
          },
          "device"_a.none() = nb::none(), "host"_a.none() = nb::none(),
          "The fastest plan of the same programs under other caps in bytes, for Session.adopt(): shape and "
          "formats stay what they are here. None: that cap stays, too.")
      .def("json", &Plan::json, "The plan in numbers; diff() compares them.")
      .def("html", &Plan::html, "One page that opens offline.")
      .def(
          "save", [](const Plan& of, const nb::object& directory) { check(of.save(path_of(directory))); },
          "directory"_a, nb::sig("def save(self, directory: " SLUICE_PATH ") -> None"),
          "Writes config.toml, plan.txt, plan.json, predicted.json and timeline.svg.")
      .def_prop_ro(
          "data", [](nb::object self) { return in_python("json", "loads", self.attr("json")()); },
          nb::sig("def data(self) -> dict[str, typing.Any]"), "What json() has, parsed.")
      .def(
          "memory",
          [](nb::object self, const std::string& tier) {
            return in_python("sluice._views", "memory", self, tier);
          },
          "tier"_a = "device", nb::sig("def memory(self, tier: str = 'device') -> sluice._views.Memory"),
          "What a memory, \"device\" or \"host\", holds over the step.")
      .def(
          "timeline", [](nb::object self) { return in_python("sluice._views", "timeline", self); },
          nb::sig("def timeline(self) -> dict[str, sluice._views.Lane]"),
          "When each task and copy begins and ends, as predicted.")
      .def(
          "_repr_html_", [](nb::object self) { return in_python("sluice._views", "page", self); },
          nb::sig("def _repr_html_(self) -> str"))
      .def("__str__", &Plan::text);
  m.def("plan", &plan, "model"_a, "machine"_a, "device"_a.none(), "host"_a.none(), nb::kw_only(),
        "settings"_a, "hyperparameters"_a, "packed"_a, "weighted"_a, "log_probabilities"_a, "round_losses"_a,
        "top_tokens"_a, "evaluate"_a, "sample_window"_a, "sample_rows"_a, "progress"_a.none());
  m.def(
      "diff",
      [](std::string_view before, std::string_view after) { return value(Plan::diff(before, after)); },
      "before"_a, "after"_a);
}

void add_events(nb::module_& m) {
  using sluice::ExpertLoad;
  nb::class_<ExpertLoad::Layer>(m, "LayerLoad", "What the router of a layer did in a step.")
      .def_ro("layer", &ExpertLoad::Layer::layer)
      .def_ro("variation", &ExpertLoad::Layer::variation,
              "Standard deviation of its experts' choices over their mean.")
      .def_ro("entropy", &ExpertLoad::Layer::entropy)
      .def_ro("loads", &ExpertLoad::Layer::loads,
              "Of each expert, the choices that fell on it over their mean.");
  nb::class_<ExpertLoad>(m, "ExpertLoad", "What the routers of a model with experts did in a step.")
      .def_ro(
          "variation", &ExpertLoad::variation,
          "Standard deviation of the choices of a layer's experts over their mean, in the mean of layers.")
      .def_ro("worst_variation", &ExpertLoad::worst_variation, "Of the layer in which it is largest.")
      .def_ro("worst_layer", &ExpertLoad::worst_layer)
      .def_ro("busiest", &ExpertLoad::busiest, "The most choices of an expert, over the mean of its layer.")
      .def_ro("entropy", &ExpertLoad::entropy, "Of a token's softmax scores, in the mean, nats.")
      .def_ro("balance", &ExpertLoad::balance, "Balance loss; the least is the number of choices of a token.")
      .def_ro("z", &ExpertLoad::z, "z-loss of a token and layer, in the mean.")
      .def_ro("layers", &ExpertLoad::layers, "LayerLoad of those that have experts.");

  using sluice::StepEvent;
  nb::class_<StepEvent>(m, "Step", "What one optimizer step came to.")
      .def_ro("step", &StepEvent::step)
      .def_ro("loss", &StepEvent::loss, "Mean over targets, nats.")
      .def_ro("gradient_norm", &StepEvent::gradient_norm, "Before clipping.")
      .def_ro("learning_rate", &StepEvent::learning_rate)
      .def_ro("seconds", &StepEvent::seconds)
      .def_ro("predicted_seconds", &StepEvent::predicted_seconds,
              "Before the step was made, by its plan and what steps until then taught.")
      .def_ro("planned_seconds", &StepEvent::planned_seconds, "By the plan alone.")
      .def_ro("differs", &StepEvent::differs,
              "In a few words, what takes another time than the plan was made with.")
      .def_ro("tokens", &StepEvent::tokens)
      .def_ro("learnt_tokens", &StepEvent::learnt_tokens)
      .def_ro("accuracy", &StepEvent::accuracy)
      .def_ro("skipped", &StepEvent::skipped, "Why no update was made; empty: one was.")
      .def_ro("router", &StepEvent::router, "ExpertLoad; None: the model has no experts.")
      .def("__repr__", [](const StepEvent& of) {
        return "<sluice.Step " + std::to_string(of.step) + ": loss " + std::to_string(of.loss) + ">";
      });

  using sluice::AdoptionEvent;
  nb::class_<AdoptionEvent>(m, "Adoption", "A change to another plan between two steps.")
      .def_ro("step", &AdoptionEvent::step, "Done by then.")
      .def_ro("before_seconds", &AdoptionEvent::before_seconds, "A step, as the plan before predicts it.")
      .def_ro("after_seconds", &AdoptionEvent::after_seconds, "A step, as the plan from here on predicts it.")
      .def_ro("moved_bytes", &AdoptionEvent::moved_bytes)
      .def_ro("predicted_seconds", &AdoptionEvent::predicted_seconds, "For moving.")
      .def_ro("seconds", &AdoptionEvent::seconds, "That moving took.")
      .def_ro("why", &AdoptionEvent::why)
      .def("__repr__", [](const AdoptionEvent& of) {
        return "<sluice.Adoption after step " + std::to_string(of.step) + ": " +
               std::to_string(of.moved_bytes) + " bytes in " + std::to_string(of.seconds) + " s>";
      });
}

void add_dataset(nb::module_& m) {
  using sluice::Dataset;
  nb::class_<Dataset>(
      m, "Dataset", "Rows to learn from, by random access: those of a step follow from data, seed and step.")
      .def_static(
          "text",
          [](const sluice::Plan& plan, const std::vector<nb::object>& paths, const nb::object& cache,
             std::vector<std::string> include, std::vector<std::string> exclude, double heldout,
             const nb::kwargs& options) {
            sluice::TextOptions o;
            o.settings =
                nb::cast<std::vector<std::string>>(in_python("sluice._options", "data_settings", options));
            for (const nb::object& path : paths) o.paths.push_back(path_of(path));
            o.include = std::move(include);
            o.exclude = std::move(exclude);
            o.heldout = heldout;
            o.cache = path_of(cache);
            Dataset made = value(unlocked([&] { return Dataset::text(plan, o); }));
            warn(made.notices());
            return made;
          },
          "plan"_a, "paths"_a, nb::kw_only(), "cache"_a, "include"_a = std::vector<std::string>(),
          "exclude"_a = std::vector<std::string>(), "heldout"_a = 0.05, "options"_a,
          nb::sig(
              "def text(plan: Plan, paths: collections.abc.Sequence[" SLUICE_PATH "], *, cache: " SLUICE_PATH
              ", include: collections.abc.Sequence[str] = [], exclude: collections.abc.Sequence[str] = [], "
              "heldout: float = 0.05, **options: typing.Any) -> Dataset"),
          "Text, records and tokens as docs/data.md says, by the tokenizer beside the model's configuration. "
          "The folder `cache` keeps the tokens; `options` are further keys of data, learn=\"all-turns\". "
          "What "
          "`sluice data` warns of is a UserWarning.")
      .def_prop_ro("notices", &Dataset::notices, "What should be known of how text became tokens.")
      .def_static("random", &Dataset::random, "plan"_a, "Random tokens, to try out shapes and speed.")
      .def(
          "batch",
          [](const Dataset& of, int64_t steps_done) {
            if (steps_done < 0) {
              raise({"steps_done = " + std::to_string(steps_done) + ": allowed are numbers from 0",
                     sluice::ErrorKind::Invalid,
                     {}});
            }
            sluice::BatchRows rows = unlocked([&] { return of.batch(steps_done); });
            const auto array = [](std::vector<int32_t>& values) {
              const std::vector<size_t> shape{values.size()};
              return found(std::move(values), shape);
            };
            return std::tuple(array(rows.tokens), array(rows.targets), array(rows.positions));
          },
          "steps_done"_a, "Tokens, targets and positions of the next step after so many.");
}

void add_session(nb::module_& m) {
  nb::class_<Waiting>(m, "Queued", "Rows that wait for optim_step(), and what it will find of them.")
      .def_prop_ro("tokens", [](const Waiting& of) { return of.queued.tokens(); })
      .def(
          "log_probabilities",
          [](const Waiting& of) {
            const Calls::Entered entered = of.calls->enter();
            return found(value(of.queued.log_probabilities()), of.shape);
          },
          nb::sig("def log_probabilities(self) -> numpy.typing.NDArray[numpy.float32]"),
          "log p of each target before the update, 0 where none counts. An error before optim_step() took "
          "the rows. The plan was made with log_probabilities.");
  using sluice::Sample;
  nb::class_<Sample>(m, "Sample", "A prompt's continuation.")
      .def_ro("tokens", &Sample::tokens)
      .def_ro("log_probabilities", &Sample::log_probabilities,
              "Of each token, as the model has it: whatever temperature it was drawn with.")
      .def_ro("logprobs", &Sample::log_probabilities, "log_probabilities.")
      .def_ro("drawn_logprobs", &Sample::drawn_log_probabilities,
              "Of each token, by the distribution that it was drawn from.")
      .def_ro("finish", &Sample::finish, "'length' or 'stop'; of Session.sample() with n.")
      .def_ro("text", &Sample::text, "Without special tokens; of Session.sample() with n and text.");

  using sluice::Session;
  nb::class_<Held>(m, "Session", nb::type_slots(kSessionSlots))
      .def(
          "__init__",
          [](Held* self, const sluice::Plan& plan) {
            warn(plan.notices());
            new (self) Held(value(unlocked([&] { return Session::open(plan); })));
          },
          "plan"_a)
      .def(
          "forward",
          [](Held& self, const Ids& tokens, const Ids& targets, const std::optional<Ids>& positions) {
            return found(
                value(self.use([&](Session& s) { return s.forward(batch_of(tokens, targets, positions)); })),
                shape_of(tokens));
          },
          "tokens"_a.noconvert(), "targets"_a.noconvert(), "positions"_a.none().noconvert() = nb::none())
      .def(
          "evaluate",
          [](Held& self, const Ids& tokens, const Ids& targets, const std::optional<Ids>& positions) {
            return value(
                self.use([&](Session& s) { return s.evaluate(batch_of(tokens, targets, positions)); }));
          },
          "tokens"_a.noconvert(), "targets"_a.noconvert(), "positions"_a.none().noconvert() = nb::none())
      .def(
          "forward_backward",
          [](Held& self, const Ids& tokens, const Ids& targets, const std::optional<Ids>& positions,
             const std::optional<Floats>& weights, const std::optional<Floats>& seeds,
             const std::optional<Ids>& top_tokens, nb::object loss) {
            const sluice::Batch batch = batch_of(tokens, targets, positions, weights, seeds, top_tokens);
            const sluice::RoundLoss asked =
                loss.is_none() ? sluice::RoundLoss() : self.asking(std::move(loss));
            return Waiting{value(self.use([&](Session& s) {
                             return asked ? s.forward_backward(batch, asked) : s.forward_backward(batch);
                           })),
                           shape_of(tokens), self.calls()};
          },
          "tokens"_a.noconvert(), "targets"_a.noconvert(), "positions"_a.none().noconvert(),
          "weights"_a.none().noconvert(), "seeds"_a.none().noconvert(), "top_tokens"_a.none().noconvert(),
          "loss"_a.none())
      .def(
          "optim_step",
          [](Held& self, double learning_rate, const std::map<std::string, double>& hyperparameters) {
            return value(
                self.use_asking([&](Session& s) { return s.optim_step(learning_rate, hyperparameters); }));
          },
          "learning_rate"_a, "hyperparameters"_a)
      .def(
          "adopt",
          [](Held& self, const sluice::Plan& plan) {
            return value(self.use([&](Session& s) { return s.adopt(plan); }));
          },
          "plan"_a)
      .def(
          "replan",
          [](Held& self, int64_t steps) { check(self.use([&](Session& s) { return s.replan(steps); })); },
          "steps"_a)
      .def("discard", [](Held& self) { self.use([](Session& s) { s.discard(); }); })
      .def_prop_ro("queued_tokens",
                   [](Held& self) { return self.use([](Session& s) { return s.queued_tokens(); }); })
      .def(
          "sample",
          [](Held& self, const std::vector<int32_t>& prompt, int64_t tokens, double temperature,
             uint64_t seed) {
            return value(self.use_interruptible([&](Session& s, const std::stop_token& stop) {
              return s.sample(prompt, {tokens, temperature, seed}, stop);
            }));
          },
          "prompt"_a, "tokens"_a, "temperature"_a, "seed"_a)
      .def(
          "sample_many",
          [](Held& self, const std::vector<std::vector<int32_t>>& prompts, int64_t n, int64_t tokens,
             double temperature, uint64_t seed, std::vector<int32_t> stop_tokens,
             std::vector<std::string> stop_strings, bool text) {
            const sluice::SampleOptions options{
                tokens, temperature, seed, std::move(stop_tokens), std::move(stop_strings), text};
            return value(self.use_interruptible([&](Session& s, const std::stop_token& stop) {
              return s.sample_many(prompts, n, options, stop);
            }));
          },
          "prompts"_a, "n"_a, "tokens"_a, "temperature"_a, "seed"_a, "stop_tokens"_a, "stop"_a, "text"_a)
      .def(
          "save_state",
          [](Held& self, const std::filesystem::path& directory) {
            check(self.use([&](Session& s) { return s.save_state(directory); }));
          },
          "directory"_a)
      .def(
          "load_state",
          [](Held& self, const std::filesystem::path& directory) {
            check(self.use([&](Session& s) { return s.load_state(directory); }));
          },
          "directory"_a)
      .def(
          "save_weights",
          [](Held& self, const std::filesystem::path& directory) {
            check(self.use([&](Session& s) { return s.save_weights(directory); }));
          },
          "directory"_a)
      .def_prop_ro("weights",
                   [](Held& self) {
                     std::map<std::string, std::vector<int64_t>> out;
                     for (auto& w : self.use([](Session& s) { return s.weights(); }))
                       out.emplace(std::move(w.name), std::move(w.shape));
                     return out;
                   })
      .def(
          "weight",
          [](Held& self, const std::string& name) {
            return tensor(self, name, self.use([&](Session& s) { return s.weight(name); }));
          },
          "name"_a)
      .def(
          "set_weight",
          [](Held& self, const std::string& name, const Floats& values) {
            check(self.use([&](Session& s) { return s.set_weight(name, {values.data(), values.size()}); }));
          },
          "name"_a, "values"_a.noconvert())
      .def(
          "gradient",
          [](Held& self, const std::string& name) {
            return tensor(self, name, self.use_asking([&](Session& s) { return s.gradient(name); }));
          },
          "name"_a)
      .def(
          "set_gradient",
          [](Held& self, const std::string& name, const Floats& values) {
            check(self.use_asking([&](Session& s) {
              return s.set_gradient(name, {values.data(), values.size()});
            }));
          },
          "name"_a, "values"_a.noconvert())
      .def_prop_ro("state_slots",
                   [](Held& self) { return self.use([](Session& s) { return s.state_slots(); }); })
      .def(
          "state_slots_of",
          [](Held& self, const std::string& name) {
            return value(self.use([&](Session& s) { return s.state_slots(name); }));
          },
          "name"_a)
      .def(
          "state",
          [](Held& self, const std::string& slot, const std::string& name) {
            return tensor(self, name, self.use([&](Session& s) { return s.state(slot, name); }));
          },
          "slot"_a, "name"_a)
      .def(
          "set_state",
          [](Held& self, const std::string& slot, const std::string& name, const Floats& values) {
            check(self.use([&](Session& s) {
              return s.set_state(slot, name, {values.data(), values.size()});
            }));
          },
          "slot"_a, "name"_a, "values"_a.noconvert())
      .def_prop_ro("steps_done",
                   [](Held& self) { return self.use([](Session& s) { return s.steps_done(); }); })
      .def("close", &Held::close);
}

}  // namespace

NB_MODULE(_sluice, m) {
  nb::register_exception_translator(translate);
  m.def("version", [] { return std::string(sluice::core::version()); });
  m.def(
      "parse_bytes", [](std::string_view text) { return value(sluice::core::parse_bytes(text)); }, "text"_a,
      "The bytes of a size such as \"22GiB\".");
  m.def("keys", keys, "The keys of the configuration.");
  m.def("advantages", advantages, "settings"_a, "rewards"_a, "group"_a);
  m.def("distillation_loss", distillation_loss, "settings"_a, "log_probabilities"_a.noconvert(),
        "teacher"_a.noconvert(), "tokens"_a);
  m.def("policy_loss", policy_loss, "settings"_a, "log_probabilities"_a.noconvert(), "answers"_a.noconvert(),
        "advantages"_a.noconvert(), "old"_a.none().noconvert(), "reference"_a.none().noconvert(),
        "answers_of_all"_a, "tokens_of_all"_a);
  m.def("key_meant_by", sluice::core::key_meant_by, "name"_a,
        "The key that a name which is none is meant for.");
  add_model(m);
  add_machine(m);
  add_plan(m);
  add_events(m);
  add_dataset(m);
  add_session(m);
}
