// `forebay order`: who gets what, as the published order says. The daemon is asked for the numbers
// of the data set and, for a selection, for sample ids; the order itself is computed here by the
// same functions that streams and daemons use, so the answer is what a training run would get.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/daemon/admin_link.h"
#include "client/cli/stream/stream_arguments.h"
#include "client/remote_stream.h"
#include "forebay/client.h"
#include "proto/contract/order.h"
#include "proto/contract/order_steps.h"

namespace forebay::cli {
namespace {

// A page is half a megabyte, well below the limit of a message.
constexpr std::uint32_t kIdsPerCall = 65'536;

struct OrderArguments {
  std::shared_ptr<StreamArguments> stream;
  std::uint32_t epoch = 0;
  std::uint64_t first_step = 0;
  std::uint64_t steps = 1;
  std::optional<std::uint64_t> sample;
};

// Maps indices of a selection to sample ids, asking the daemon page by page.
class SelectionIds {
 public:
  SelectionIds(AdminLink link, std::string dataset, std::string selection)
      : link_(std::move(link)), dataset_(std::move(dataset)), selection_(std::move(selection)) {}

  Result<std::uint64_t> IdOf(std::uint64_t index) {
    // The selection of all samples numbers them by their ids.
    if (selection_ == "all" || selection_.empty()) return index;
    FOREBAY_TRY(Load(index));
    return page_[index - page_first_];
  }

  // The index of a sample; kNotFound where the selection does not have it.
  Result<std::uint64_t> IndexOf(std::uint64_t id, std::uint64_t count) {
    const Error absent(ErrorCode::kNotFound, "selection '" + selection_ + "' has no sample " +
                                                 std::to_string(id));
    // No call for "all": the answer would be the question.
    if (selection_ == "all" || selection_.empty()) {
      if (id >= count) return absent;
      return id;
    }
    // The daemon maps indices to ids only, so the other direction is a search through all pages.
    for (std::uint64_t first = 0; first < count; first += page_.size()) {
      FOREBAY_TRY(Load(first));
      const auto found = std::find(page_.begin(), page_.end(), id);
      if (found != page_.end()) {
        return page_first_ + static_cast<std::uint64_t>(found - page_.begin());
      }
    }
    return absent;
  }

 private:
  Status Load(std::uint64_t index) {
    if (!page_.empty() && index >= page_first_ && index - page_first_ < page_.size()) return {};
    // Pages are aligned: a step's indices lie anywhere, and neighbours then share a page.
    page_first_ = index - index % kIdsPerCall;
    FOREBAY_ASSIGN(page_, link_.Resolve({.dataset = dataset_,
                                         .selection = selection_,
                                         .first_index = page_first_,
                                         // The last page may be shorter: the daemon answers with
                                         // what the selection has.
                                         .count = kIdsPerCall}));
    // An empty page would also make the search above run for ever.
    if (index - page_first_ >= page_.size()) {
      return Error(ErrorCode::kDataLoss, "the daemon resolves fewer samples than it selects");
    }
    return {};
  }

  AdminLink link_;
  std::string dataset_;
  std::string selection_;
  std::uint64_t page_first_ = 0;
  std::vector<std::uint64_t> page_;
};

struct OrderQuestion {
  const StreamOptions& options;
  OrderSpec spec;
  StepPlan plan;
  Order order;
};

Status PrintSteps(CommandContext& context, const OrderQuestion& question,
                  const OrderArguments& arguments, SelectionIds& ids) {
  // Both limits are made small before they are added, because the user may give any number.
  const std::uint64_t first = std::min(arguments.first_step, question.plan.steps());
  const std::uint64_t end = first + std::min(arguments.steps, question.plan.steps() - first);
  for (std::uint64_t step = first; step < end; ++step) {
    // A line for each rank and step, so that a line can be compared with the log of that rank.
    for (std::uint32_t rank = 0; rank < question.options.ranks; ++rank) {
      FOREBAY_ASSIGN(const StepSlice slice, question.plan.RankSlice(StepId(step), rank));
      JsonArray samples;
      std::string text;
      std::uint64_t padded = 0;
      for (std::uint64_t p = slice.first; p < slice.first + slice.count; ++p) {
        // With the tail policy "pad", positions behind the last sample stand for earlier ones;
        // Resolve maps them back before the order is asked.
        const ResolvedPosition resolved = question.plan.Resolve(p);
        FOREBAY_ASSIGN(const std::uint64_t id,
                       ids.IdOf(question.order.Forward(resolved.position)));
        if (resolved.padded) ++padded;
        samples.Add(id);
        text += fmt::format(" {}{}", id, resolved.padded ? "*" : "");
      }
      if (context.json) {
        context.PrintJson("order", {{"epoch", arguments.epoch},
                                    {"step", step},
                                    {"rank", rank},
                                    {"position", slice.first},
                                    {"padded", padded},
                                    {"ids", samples}});
      } else {
        context.out << fmt::format("epoch {} step {} rank {}:{}\n", arguments.epoch, step, rank,
                                   text);
      }
    }
  }
  return {};
}

Status PrintSample(CommandContext& context, const OrderQuestion& question,
                   const OrderArguments& arguments, SelectionIds& ids) {
  const std::uint64_t sample = *arguments.sample;
  FOREBAY_ASSIGN(const std::uint64_t index, ids.IndexOf(sample, question.spec.sample_count));
  // The order is a permutation that can be inverted, so this needs no search through an epoch.
  const Position position = question.order.Inverse(index);
  const std::uint64_t step = question.plan.StepOf(position).value();
  // Positions behind the last step exist in the order, but the tail policy "drop" hands none of
  // them out.
  const bool dropped = step >= question.plan.steps();
  // StepPlan::Create has refused a batch that the ranks cannot share equally, so this is not 0.
  const std::uint64_t share = question.options.global_batch / question.options.ranks;
  std::uint64_t rank = position.value() % question.options.global_batch / share;
  // The slices are asked, because a short last step is divided otherwise than a whole one.
  if (!dropped) {
    for (std::uint64_t r = 0; r < question.options.ranks; ++r) {
      FOREBAY_ASSIGN(const StepSlice slice, question.plan.RankSlice(StepId(step), r));
      if (position.value() >= slice.first && position.value() - slice.first < slice.count) rank = r;
    }
  }
  if (context.json) {
    JsonObject answer = {{"sample", sample},
                   {"epoch", arguments.epoch},
                   {"index", index},
                   {"position", position.value()},
                   {"dropped", dropped}};
    // A dropped sample has neither; absent members say that better than numbers that mean nothing.
    if (!dropped) {
      answer.Add("step", step);
      answer.Add("rank", rank);
    }
    context.PrintJson("order_of_sample", answer);
  } else if (dropped) {
    context.out << fmt::format("sample {} is at position {} of epoch {}, which the tail policy "
                               "drops\n",
                               sample, position.value(), arguments.epoch);
  } else {
    context.out << fmt::format("sample {} is at position {} of epoch {}: step {}, rank {}\n",
                               sample, position.value(), arguments.epoch, step, rank);
  }
  return {};
}

Status RunOrder(CommandContext& context, const OrderArguments& arguments) {
  FOREBAY_TRY(ResolveStreamArguments(*arguments.stream));
  const StreamOptions& options = arguments.stream->options;
  // Looked up once and used for both connections, so that both ask the same daemon.
  FOREBAY_ASSIGN(const std::string address, DaemonAddress(context));
  FOREBAY_ASSIGN(const auto client,
                 Client::Connect({.address = address,
                                  .shared_memory = false,
                                  .connect_timeout_ms = context.connect_timeout_ms}));
  FOREBAY_ASSIGN(const DatasetInfo info, client->Describe(options.dataset, options.selection));
  // Without a catalog the number of samples is not known, and the order depends on it.
  if (info.catalog_fingerprint == 0) {
    return Error(ErrorCode::kUnavailable, "the catalog is still being built; try again");
  }
  // A stream calls the same function when it is opened, so both have the same order.
  const OrderSpec spec = internal::MakeOrder(options, info);
  FOREBAY_TRY(spec.Validate());
  FOREBAY_ASSIGN(const StepPlan plan, StepPlan::Create({.sample_count = spec.sample_count,
                                                        .global_batch = options.global_batch,
                                                        .ranks = options.ranks,
                                                        .tail = options.tail}));
  const OrderQuestion question = {.options = options,
                                  .spec = spec,
                                  .plan = plan,
                                  .order = Order(spec, EpochId(arguments.epoch))};
  FOREBAY_ASSIGN(AdminLink link, AdminLink::Connect(context));
  SelectionIds ids(std::move(link), options.dataset, options.selection);
  if (arguments.sample) return PrintSample(context, question, arguments, ids);
  return PrintSteps(context, question, arguments, ids);
}

}  // namespace

void AddOrder(Command& program, CommandContext& context) {
  Command command = program.AddCommand(
      "order", "Print who gets what: the samples of each step and rank, or where a sample goes.");
  auto arguments = std::make_shared<OrderArguments>();
  arguments->stream = AddStreamArguments(command);
  command.AddOption("--ranks", arguments->stream->options.ranks, "Ranks (default: 1)")
      .Positive();
  command.AddOption("--epoch", arguments->epoch, "Epoch, from 0 (default: 0)");
  command.AddOption("--first-step", arguments->first_step, "First step (default: 0)");
  command.AddOption("--steps", arguments->steps, "How many steps (default: 1)");
  command.AddOption("--sample", arguments->sample, "Say where this sample id goes instead");
  command.SetFooter("Samples marked * are repeats of the tail policy 'pad'.");
  command.OnRun([&context, arguments] { return RunOrder(context, *arguments); });
}

}  // namespace forebay::cli
