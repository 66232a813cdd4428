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
	Ready    readyCommand    `cmd:"" help:"Ask the bridge that runs whether it is ready."`
	Messages messageCommands `embed:""`
	Queues   queueCommands   `embed:""`
	Outbox   outboxCommands  `cmd:"" help:"Make, look into or repair the tables of an outbox in a database."`
	Config   configCommands  `cmd:"" help:"Check, print or describe the configuration."`
	Version  versionCommand  `cmd:"" help:"Print the version."`

	Completion completionCommand `cmd:"" help:"Print what makes a shell complete commands, flags and queues."`
	Man        manCommand        `cmd:"" help:"Print the manual page."`
	Complete   completeCommand   `cmd:"" hidden:"" name:"__complete"`
}

// messageCommands are about messages.
type messageCommands struct {
	Schedule   scheduleCommand   `cmd:"" help:"Schedule a message."`
	Get        getCommand        `cmd:"" help:"Show a message."`
	List       listCommand       `cmd:"" help:"List messages: what waits, is parked, in flight or dead."`
	Cancel     cancelCommand     `cmd:"" help:"Cancel a message."`
	Reschedule rescheduleCommand `cmd:"" help:"Move a message to another due time."`
	PublishNow publishNowCommand `cmd:"" help:"Make a message due now."`
	Jobs       jobsCommands      `cmd:"" help:"List, show or stop what the bridges do to many messages."`
	Dead       deadCommands      `cmd:"" help:"List, show, redrive or purge dead letters."`
}

// queueCommands are about a queue as a whole.
type queueCommands struct {
	Stats    statsCommand    `cmd:"" help:"Show what queues hold, and how fast they are."`
	Top      topCommand      `cmd:"" help:"The same again and again, in place."`
	Verify   verifyCommand   `cmd:"" help:"Check that all that a queue holds is whole, and mend it."`
	Forecast forecastCommand `cmd:"" help:"Show how many messages fall due when."`
	Pause    pauseCommand    `cmd:"" help:"Stop a queue or one topic of it: what waits goes on waiting."`
	Resume   resumeCommand   `cmd:"" help:"Let a paused queue or topic go on."`
	Shards   shardsCommands  `cmd:"" help:"Show a queue's shards, or change their number."`
}

// configVariable names the configuration where no flag does.
const configVariable = "DELAYBRIDGE_CONFIG"

// fileFlag names the configuration.
type fileFlag struct {
	Config string `short:"c" required:"" env:"${config_variable}" placeholder:"FILE" help:"The configuration file."`
}

// outputFlag chooses the form of the results.
type outputFlag struct {
	Output string `short:"o" enum:"table,wide,json" default:"table" placeholder:"table|wide|json" help:"Form of the results: for people, with wide lists in more columns, or json, one object each."`
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
	Queue string `arg:"" optional:"" help:"The queue. Without it: all of the configuration."`
}

// messageFlags name a message.
type messageFlags struct {
	queueFlags
	ID  string  `name:"id" required:"" placeholder:"ID" help:"The message's id."`
	Key *string `placeholder:"KEY" help:"The message's key. Without it all messages of that id are looked for."`
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
