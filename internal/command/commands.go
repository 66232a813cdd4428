package command

import (
	"slices"
	"strings"
)

// commands are the command line's grammar.
type commands struct {
	Trying   trialCommands   `embed:""`
	Run      runCommand      `cmd:"" help:"Run the bridge."`
	Check    checkCommand    `cmd:"" help:"Log in everywhere, and say what will not work or may lose messages."`
	Ready    readyCommand    `cmd:"" help:"Ask the running bridge whether it is ready."`
	Inlets   inletsCommand   `cmd:"" help:"Ask the running bridge what its inlets do."`
	MCP      mcpCommand      `cmd:"" name:"mcp" help:"Let an assistant ask the running bridge, by the Model Context Protocol."`
	Messages messageCommands `embed:""`
	Queues   queueCommands   `embed:""`
	Outbox   outboxCommands  `cmd:"" help:"Make, show or repair the tables of an outbox in a database."`
	Config   configCommands  `cmd:"" help:"Check, print or describe the configuration."`
	Version  versionCommand  `cmd:"" help:"Print the version."`

	Completion completionCommand `cmd:"" help:"Print a shell's completion of commands, flags and queues."`
	Man        manCommand        `cmd:"" help:"Print the manual page."`
	Complete   completeCommand   `cmd:"" hidden:"" name:"__complete"`
}

// messageCommands are about messages.
type messageCommands struct {
	Schedule   scheduleCommand   `cmd:"" help:"Schedule a message."`
	Get        getCommand        `cmd:"" help:"Show a message."`
	List       listCommand       `cmd:"" help:"List messages: waiting, parked, in flight or dead."`
	Cancel     cancelCommand     `cmd:"" help:"Cancel a message."`
	Reschedule rescheduleCommand `cmd:"" help:"Move a message to another due time."`
	PublishNow publishNowCommand `cmd:"" help:"Make a message due now."`
	Recurring  recurringCommands `cmd:"" help:"Set, list, show, pause, resume or delete recurring schedules."`
	Jobs       jobsCommands      `cmd:"" help:"List, show or stop jobs, which change many messages."`
	Import     importCommands    `cmd:"" help:"Move what waits in asynq or BullMQ here."`
	Dead       deadCommands      `cmd:"" help:"List, show, redrive or purge dead letters."`
}

// queueCommands are about a queue as a whole.
type queueCommands struct {
	Stats    statsCommand    `cmd:"" help:"Show what queues hold, and how fast they are."`
	Usage    usageCommand    `cmd:"" help:"Show what queues take and have published, each and by owner."`
	Top      topCommand      `cmd:"" help:"Repeat the same, in place."`
	Verify   verifyCommand   `cmd:"" help:"Check that all that a queue holds is consistent, and repair it."`
	Forecast forecastCommand `cmd:"" help:"Show how many messages fall due when."`
	Pause    pauseCommand    `cmd:"" help:"Stop publishing of a queue or one topic: its messages keep waiting."`
	Resume   resumeCommand   `cmd:"" help:"Resume a paused queue or topic."`
	Queues   queuesCommands  `cmd:"" help:"List, show, apply or delete queues that a running bridge is told to have."`
	Shards   shardsCommands  `cmd:"" help:"Show a queue's shards, or change their number."`
	Size     sizeCommand     `cmd:"" help:"Say how large Redis, the bridge and an outbox must be for a load."`
}

// configVariable names the configuration where no flag does.
const configVariable = "DELAYBRIDGE_CONFIG"

// fileFlag names the configuration.
type fileFlag struct {
	Config string `short:"c" required:"" env:"${config_variable}" placeholder:"FILE" help:"The configuration file."`
}

// outputFlag chooses the form of the results.
type outputFlag struct {
	Output string `short:"o" enum:"table,wide,json" default:"table" placeholder:"table|wide|json" help:"Format of the results: table or wide for people, wide with more columns; json, one object each."`
}

func (f outputFlag) json() bool { return f.Output == "json" }
func (f outputFlag) wide() bool { return f.Output == "wide" }

// queueFlags name a queue, and how to reach it.
type queueFlags struct {
	fileFlag
	outputFlag
	Queue string `required:"" placeholder:"QUEUE" help:"The queue, one of the configuration."`
}

// queuesFlags name a queue, or mean all.
type queuesFlags struct {
	fileFlag
	outputFlag
	Queue string `arg:"" optional:"" help:"The queue. Default: all of the configuration."`
}

// messageFlags name a message.
type messageFlags struct {
	queueFlags
	ID  string  `name:"id" required:"" placeholder:"ID" help:"The message's id."`
	Key *string `placeholder:"KEY" help:"The message's key. Default: search all messages of that id."`
}

// wantsJSON looks for -o json in a command line, which may be wrong otherwise.
func wantsJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	for i, arg := range args {
		switch {
		case arg == "-ojson", arg == "-o=json", arg == "--output=json":
			return true
		case (arg == "-o" || arg == "--output") && i+1 < len(args) && strings.EqualFold(args[i+1], "json"):
			return true
		}
	}
	return false
}
