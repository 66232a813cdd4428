package api

import "github.com/delaybridge/delaybridge/internal/api/access"

// CallerView is who calls, so that a page offers what the caller may do.
type CallerView struct {
	Name   string   `json:"name" doc:"The name of the token, JWT or certificate; local or remote without any."`
	Role   string   `json:"role" enum:"producer,viewer,operator"`
	Change bool     `json:"may_change" doc:"Whether the role may change anything here."`
	Token  bool     `json:"by_token" doc:"Whether a token, JWT or certificate identified the caller."`
	Topics []string `json:"topics,omitempty" doc:"The topics to which the caller is limited; absent if it may see all."`
}

func viewCaller(c *access.Caller, guard *access.Guard) CallerView {
	return CallerView{
		Name: c.Name, Role: string(c.Role), Change: c.Role == access.Operator && !guard.IsReadOnly(), Token: guard.NeedsCredential(), Topics: c.Topics(),
	}
}
