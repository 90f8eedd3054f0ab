// The wiring of a trainer process: parse the command line, join the other ranks, start the
// watchdog, check BLAS and threads, connect to the daemon, make the engine, and run. A rank that
// fails while others may be in a collective call ends the whole job; ranks that stop in an orderly
// way have agreed to do so.
#include "trainer/program/run_trainer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/launch.h"
#include "trainer/comm/watchdog/watchdog.h"
#include "trainer/core/config/layout_plan.h"
#include "trainer/core/config/train_config.h"
#include "trainer/core/feed/forebay_feed.h"
#include "trainer/core/loop/evaluate_checkpoint.h"
#include "trainer/core/loop/run_training.h"
#include "trainer/core/machine/blas_check.h"
#include "trainer/core/machine/stop_signal.h"
#include "trainer/core/machine/thread_plan.h"
#include "trainer/core/machine/wall_limit.h"
#include "trainer/core/metrics/text_file.h"
#include "trainer/core/report/draw_report.h"
#include "trainer/core/weights/export_weights.h"
#include "trainer/core/without_exceptions.h"
#include "trainer/exec/torch_engine.h"
#ifdef FOREBAY_TRAINER_WITH_MPI
#include "trainer/comm/transport/mpi_transport.h"
#endif

namespace forebay::train {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitSlowBlas = 3;

#ifdef FOREBAY_TRAINER_WITH_MPI
constexpr bool kBuiltWithMpi = true;
#else
constexpr bool kBuiltWithMpi = false;
#endif

// What a command that ran to its end says to the launcher.
struct Outcome {
  int exit_code = 0;
};

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

void PrintLine(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  // Progress must be seen at once, also in a pipe.
  std::fflush(stdout);
}

// Mistakes in the command line or the configuration have an exit code of their own: a batch system
// need not try again.
int ReportError(const Error& error) {
  std::fputs(("forebay-train: " + error.ToString() + "\n").c_str(), stderr);
  return error.code() == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

// The clocks and the environment are read here, so that WallLimit can be tested.
Result<WallLimit> MakeWallLimit(const RunConfig& run) {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  const char* const slurm_end_time = std::getenv("SLURM_JOB_END_TIME");
  return WallLimit::Make(
      run, {.now_ns = NowNs(),
            .unix_s = static_cast<std::uint64_t>(since_1970 / std::chrono::seconds(1)),
            .slurm_end_time = slurm_end_time == nullptr ? "" : slurm_end_time});
}

// Finds out whether this process is one of several ranks, and joins them.
Result<Communicator> MakeCommunicator(const RunConfig& run) {
  const Launch launch = FindLaunch([](const char* name) { return std::getenv(name); });
  // Without MPI, a job of several processes is an error here.
  FOREBAY_ASSIGN(const bool joins, JoinsByMpi(run.communicator, launch, kBuiltWithMpi));
#ifdef FOREBAY_TRAINER_WITH_MPI
  if (joins) {
    FOREBAY_ASSIGN(std::unique_ptr<Transport> transport, MakeMpiTransport());
    FOREBAY_TRY(CheckRanksOfLaunch(launch, transport->size()));
    return Communicator(std::move(transport),
                        static_cast<std::uint64_t>(run.communication_timeout_s) * 1'000'000'000);
  }
#else
  FOREBAY_CHECK(!joins);
#endif
  return Communicator::Alone();
}

// The summary belongs to the folder of metrics, unless it has a file of its own.
std::string SummaryPath(const RunConfig& run) {
  if (!run.summary_json.empty() || run.metrics_dir.empty()) return run.summary_json;
  return (std::filesystem::path(run.metrics_dir) / kSummaryFile).string();
}

// Null where none is wanted.
Result<std::unique_ptr<Watchdog>> StartWatchdog(const RunConfig& run,
                                                Communicator& communicator) {
  if (run.watchdog_s == 0) return std::unique_ptr<Watchdog>();
  WatchdogOptions options;
  options.watch.limit_ns = static_cast<std::uint64_t>(run.watchdog_s) * 1'000'000'000;
  options.print = [](const std::string& line) {
    std::fputs(("forebay-train: " + line + "\n").c_str(), stderr);
  };
  // _exit and not exit: destructors would wait for the main thread, which may be in MPI.
  options.end_job = [] { ::_exit(kExitFailed); };
  return Watchdog::Start(communicator, std::move(options));
}

// What figures are held against: products of this precision on this machine.
Result<double> PeakGflops(Precision precision, const BlasVerdict& blas, bool prints) {
  // The check of BLAS has measured fp32 already.
  if (precision == Precision::kFp32) return blas.facts.gemm_gflops;
  FOREBAY_ASSIGN(const double gflops, MeasureProduct(precision));
  if (prints && gflops < blas.facts.gemm_gflops) {
    PrintLine(fmt::format("warning: train.precision = \"{}\" is slower here: a product runs at "
                          "{:.0f} GFLOP/s, in fp32 at {:.0f}",
                          PrecisionName(precision), gflops, blas.facts.gemm_gflops));
  }
  return gflops;
}

// What a rank computes with. The figures of a GPU are not measured.
struct Arithmetic {
  std::string blas;
  double blas_gflops = 0;
  double peak_gflops = 0;
};

// Measures the products of a rank that computes on the processor. Where its BLAS is too slow,
// prints that and returns nullopt.
Result<std::optional<Arithmetic>> CheckProcessor(const TrainConfig& config, Precision precision,
                                                 std::uint32_t threads,
                                                 const Communicator& communicator) {
  const Result<BlasVerdict> blas = CheckBlas(*MakeTorchBlasProbe(), config.run.force_slow_blas);
  if (!blas.has_value()) {
    ReportError(blas.error());
    return std::optional<Arithmetic>();
  }
  const bool leads = communicator.rank() == 0;
  if (leads) {
    PrintLine(fmt::format("{} rank(s) x {} thread(s), BLAS {} ({:.0f} GFLOP/s)",
                          communicator.size(), threads, blas->name, blas->facts.gemm_gflops));
    if (!blas->fast) PrintLine("warning: training on slow BLAS, as --force-slow-blas asks");
  }
  FOREBAY_ASSIGN(const double gflops, PeakGflops(precision, *blas, leads));
  return std::optional<Arithmetic>(Arithmetic{.blas = blas->name,
                                              .blas_gflops = blas->facts.gemm_gflops,
                                              .peak_gflops = gflops});
}

// The engine and the source of its data.
struct Session {
  std::uint32_t threads = 1;
  Arithmetic arithmetic;
  std::unique_ptr<ForebaySource> source;
  std::unique_ptr<Engine> engine;
};

// Connects to the daemon, makes the model for its data set, and the engine. Where the BLAS is too
// slow, prints that and returns nullopt.
Result<std::optional<Session>> OpenSession(const TrainerProgram& program,
                                           const TrainConfig& config,
                                           Communicator& communicator) {
  FOREBAY_ASSIGN(const Precision precision, ParsePrecision(config.train.precision));
  Session session;
  // Threads first: what is measured below depends on them.
  session.threads = PlanThreads(MeasureThreadFacts(
      static_cast<std::uint32_t>(config.run.threads), communicator.local_size()));
  FOREBAY_TRY(SetTorchThreads(session.threads));
  FOREBAY_ASSIGN(const bool on_gpu,
                 ComputesOnGpu(config.run.device, communicator.local_rank()));
  const bool leads = communicator.rank() == 0;
  std::optional<Arithmetic> arithmetic = Arithmetic();
  if (on_gpu) {
    if (leads) PrintLine(fmt::format("{} rank(s), on GPUs", communicator.size()));
  } else {
    FOREBAY_ASSIGN(arithmetic,
                   CheckProcessor(config, precision, session.threads, communicator));
    if (!arithmetic) return std::optional<Session>();
  }
  session.arithmetic = *std::move(arithmetic);
  FOREBAY_ASSIGN(session.source, ForebaySource::Connect(config, communicator.rank()));
  FOREBAY_ASSIGN(const SampleFacts facts, session.source->Describe());
  FOREBAY_ASSIGN(std::shared_ptr<const ModelTask> task, WithoutExceptions("model", [&] {
                   return program.make_task(config, facts);
                 }));
  FOREBAY_ASSIGN(session.engine,
                 MakeTorchEngine(config, std::move(task), communicator, PrintLine));
  return std::optional<Session>(std::move(session));
}

// Ranks and layout are checked before the data set is opened, which may take long.
Result<Outcome> Train(const TrainerProgram& program, const TrainConfig& config,
                      Communicator& communicator) {
  FOREBAY_TRY(CheckRanks(config, communicator.size()));
  FOREBAY_ASSIGN(const std::unique_ptr<Watchdog> watchdog,
                 StartWatchdog(config.run, communicator));
  // Installed before the data set is opened, so that a signal during the long start is not lost.
  const StopSignal stop;
  FOREBAY_ASSIGN(const WallLimit limit, MakeWallLimit(config.run));
  const bool leads = communicator.rank() == 0;
  const std::string dependence = LayoutDependence(config);
  if (leads && !dependence.empty()) {
    PrintLine("note: the weights will depend on the layout, because of " + dependence);
  }
  FOREBAY_ASSIGN(const std::optional<Session> session,
                 OpenSession(program, config, communicator));
  // A code of its own: requeueing on the same node would not help.
  if (!session) return Outcome{kExitSlowBlas};
  FOREBAY_ASSIGN(TrainingReport report,
                 RunTraining(config, {.engine = *session->engine,
                                      .communicator = communicator,
                                      .feeds = *session->source,
                                      .stop_requested =
                                          [&stop, &limit] {
                                            return stop.requested() || limit.Reached(NowNs());
                                          },
                                      .now_ns = NowNs,
                                      .print = PrintLine,
                                      .peak_gflops = session->arithmetic.peak_gflops}));
  // The loop does not know these; they are facts about the process.
  report.threads = session->threads;
  report.layout_dependence = dependence;
  report.blas = session->arithmetic.blas;
  report.blas_gflops = session->arithmetic.blas_gflops;
  if (leads) {
    std::fputs(("\n" + ClosingTable(report)).c_str(), stdout);
    const std::string summary = SummaryPath(config.run);
    // The run has ended well: its exit code says so.
    const Status written = summary.empty() ? Status() : WriteSummary(summary, report);
    if (!written.has_value()) {
      PrintLine("warning: the summary is not written: " + written.error().ToString());
    }
  }
  // No rank leaves before rank 0 has written the summary.
  FOREBAY_TRY(communicator.Barrier());
  if (report.completed) return Outcome{0};
  if (config.checkpoint.checkpoint_dir.empty()) {
    return Error(ErrorCode::kAborted,
                 "stopped by a signal or the wall-time limit; nothing was saved, "
                 "checkpoint.checkpoint_dir is empty");
  }
  // The checkpoint is written: the batch system may start the job again.
  return Outcome{kExitRequeue};
}

// As Train, without signals and limits: an evaluation that is killed loses nothing.
Result<Outcome> Evaluate(const TrainerProgram& program, const EvaluateRequest& request,
                         Communicator& communicator) {
  const TrainConfig& config = request.config;
  FOREBAY_TRY(CheckRanks(config, communicator.size()));
  FOREBAY_ASSIGN(const std::unique_ptr<Watchdog> watchdog,
                 StartWatchdog(config.run, communicator));
  FOREBAY_ASSIGN(const std::optional<Session> session,
                 OpenSession(program, config, communicator));
  if (!session) return Outcome{kExitSlowBlas};
  FOREBAY_ASSIGN(const CheckpointEvaluation done,
                 EvaluateCheckpoint(request.checkpoint, {.engine = *session->engine,
                                                         .communicator = communicator,
                                                         .feeds = *session->source,
                                                         .stop_requested = [] { return false; },
                                                         .now_ns = NowNs,
                                                         .print = PrintLine}));
  if (communicator.rank() == 0) {
    for (const std::string& line : request.passed_over) {
      PrintLine("checkpoint passed over: " + line);
    }
    PrintLine(ToText(done));
    if (!config.run.summary_json.empty()) {
      FOREBAY_TRY(WriteTextFile(config.run.summary_json, ToJsonText(done)));
    }
  }
  FOREBAY_TRY(communicator.Barrier());
  return Outcome{0};
}

// Trains or evaluates, as `work` does, on all ranks that the launcher started.
int RunOnRanks(const TrainConfig& config, char** argv,
               const std::function<Result<Outcome>(Communicator&)>& work) {
  // Before MPI: it may start the program again, which a rank that has joined must not do.
  ApplyWaitPolicy(config.run.wait_policy.c_str(), argv);
  Result<Communicator> communicator = MakeCommunicator(config.run);
  if (!communicator.has_value()) return ReportError(communicator.error());
  const Result<Outcome> outcome = work(*communicator);
  const int exit_code = outcome.has_value() ? outcome->exit_code : ReportError(outcome.error());
  // A rank that failed does not leave the others waiting in a collective call. Every rank that
  // stops for a requeue does so by agreement.
  if (exit_code != 0 && exit_code != kExitRequeue) communicator->Abort(exit_code);
  return exit_code;
}

// Prints what a command without ranks has to say, and returns its exit code.
int PrintResult(const Result<std::string>& text) {
  if (!text.has_value()) return ReportError(text.error());
  std::fputs(text->c_str(), stdout);
  return 0;
}

// Parses on every rank: each reads the checkpoint's configuration by itself.
int EvaluateMain(int argc, char** argv, const TrainerProgram& program) {
  const Result<EvaluateRequest> request = ParseEvaluateCommand(argc, argv);
  if (!request.has_value()) return ReportError(request.error());
  if (!request->text.empty()) return PrintResult(request->text);
  return RunOnRanks(request->config, argv, [&](Communicator& communicator) {
    return Evaluate(program, *request, communicator);
  });
}

}  // namespace

int RunTrainer(int argc, char** argv, const TrainerProgram& program) {
  // Commands come before CLI11, which would take them for a wrong flag.
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "report") return PrintResult(ReportCommand(argc, argv));
  if (command == "export") return PrintResult(ExportCommand(argc, argv));
  if (command == "evaluate") return EvaluateMain(argc, argv, program);
  const Result<CommandLine> line = ParseCommandLine(argc, argv, program.defaults);
  if (!line.has_value()) return ReportError(line.error());
  if (!line->text.empty()) {
    std::fputs(line->text.c_str(), stdout);
    return 0;
  }
  if (line->lists_models) {
    std::fputs(program.models.c_str(), stdout);
    return 0;
  }
  // Help and lists were printed without ranks, so that they work without a launcher.
  return RunOnRanks(line->config, argv, [&](Communicator& communicator) {
    return Train(program, line->config, communicator);
  });
}

}  // namespace forebay::train
