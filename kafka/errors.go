package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/freshet-io/freshet"
)

// refused reports whether the broker answered, and said no: asking again will not help.
func refused(err error) bool {
	for _, no := range []error{
		kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
		kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.FencedInstanceID, kerr.InvalidSessionTimeout, kerr.InconsistentGroupProtocol, kerr.InvalidGroupID,
	} {
		if errors.Is(err, no) {
			return true
		}
	}
	var alert tls.AlertError
	var cert *tls.CertificateVerificationError
	return ourCertificateRefused(err) || errors.As(err, &alert) || errors.As(err, &cert) ||
		unknownAuthority(err) || otherName(err)
}

// ourCertificateRefused reports whether a broker ended the handshake.
func ourCertificateRefused(err error) bool {
	var remote *net.OpError
	return errors.As(err, &remote) && remote.Op == "remote error"
}

func unknownAuthority(err error) bool {
	var authority x509.UnknownAuthorityError
	return errors.As(err, &authority)
}

func otherName(err error) bool {
	var host x509.HostnameError
	return errors.As(err, &host)
}

// final reports whether the broker's answer will stay the same.
func final(err error) bool {
	var answer *kerr.Error
	return errors.As(err, &answer) && !answer.Retriable
}

func (s *Source) refusedError(what string, err error) error {
	fix := "check user, password and certificates of the source, and the rights that the broker gives them"
	switch {
	case errors.Is(err, kerr.FencedInstanceID):
		fix = fmt.Sprintf("another process uses the member id %q: give each its own", s.o.InstanceID)
	case errors.Is(err, kerr.InvalidSessionTimeout):
		fix = "choose a session timeout between the broker's group.min and group.max.session.timeout.ms"
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		fix = fmt.Sprintf("the group %q is used by something else: choose another", s.o.Group)
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		fix = fmt.Sprintf("grant Read on the group %q", s.o.Group)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		fix = "grant Read and Describe on the topic"
	case ourCertificateRefused(err):
		fix = "give a certificate that the broker trusts: tls.cert and tls.key"
	case unknownAuthority(err):
		fix = "name the authority that signed the broker's certificate: tls.ca"
	case otherName(err):
		fix = "name the broker as its certificate does, or give tls.server_name"
	}
	return &freshet.Error{Code: freshet.CodeSourceRefused, Class: freshet.ClassEnvironment, Place: s.place(),
		Msg: "the broker refuses to " + what, Fix: fix, Err: err}
}

func (s *Source) unreachableError(waited time.Duration, err error) error {
	return &freshet.Error{Code: freshet.CodeSourceUnreachable, Class: freshet.ClassEnvironment, Place: s.place(),
		Msg: fmt.Sprintf("no broker answered within %s", waited),
		Fix: "check that the broker runs and that host and port can be reached from here; a broker that hangs up" +
			" may want TLS, or other credentials", Err: err}
}

// place is the broker as people name it.
func (s *Source) place() string { return "kafka://" + strings.Join(s.brokers, ",") }

// noTopicError names the topics that are spelled most like the one that is missing.
func (s *Source) noTopicError(name string, there []string) error {
	fix := "create the topic, or check its name"
	if near := nearest(name, there); len(near) > 0 {
		fix = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return &freshet.Error{Code: freshet.CodeNoTopic, Class: freshet.ClassInput, Place: s.place(),
		Msg: fmt.Sprintf("there is no topic %q", name), Fix: fix}
}

// nearest returns up to three names that differ little from name, the closest first.
func nearest(name string, from []string) []string {
	type near struct {
		name string
		far  int
	}
	var found []near
	for _, n := range from {
		far := distance(name, n)
		if far <= max(2, len(name)/3) || strings.Contains(n, name) {
			found = append(found, near{n, far})
		}
	}
	slices.SortFunc(found, func(a, b near) int {
		if a.far != b.far {
			return a.far - b.far
		}
		return strings.Compare(a.name, b.name)
	})
	var names []string
	for _, f := range found[:min(3, len(found))] {
		names = append(names, f.name)
	}
	return names
}

// distance is Levenshtein's: how many bytes to add, drop or change to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// gapError is for a lane whose next offset is not in the log, which holds [first, end).
func gapError(table string, l freshet.Lane, next, first, end int64) error {
	msg := fmt.Sprintf("the next offset to read is %d, but the log begins at %d: %d offsets were removed by"+
		" retention before they were read", next, first, first-next)
	seq := first - 1
	if next > end {
		msg = fmt.Sprintf("the next offset to read is %d, but the log ends at %d: the broker lost %d offsets"+
			" that were read already, and may use them again for other records", next, end, next-end)
		seq = end - 1
	}
	return &freshet.Error{Code: freshet.CodeGap, Class: freshet.ClassInput, Place: l.Position(next), Msg: msg,
		Fix: fmt.Sprintf("to go on where the log does: freshet progress set %s '%s=%d'", table, l, seq)}
}

// beginningError is for a partition that was to be read whole.
func beginningError(table string, l freshet.Lane, first int64) error {
	return &freshet.Error{Code: freshet.CodeGap, Class: freshet.ClassInput, Place: l.Position(first),
		Msg: fmt.Sprintf("table %s is to be loaded from the beginning, and the log begins at %d: the records before it were "+
			"removed by retention, and what only they tell would be missing from the table", table, first),
		Fix: "if the table needs no more than what is there, say so: --from-earliest-kept"}
}

// brokenError is for records that the broker cannot give us.
func brokenError(table string, l freshet.Lane, next int64, err error) error {
	return &freshet.Error{Code: freshet.CodeGap, Class: freshet.ClassInput, Place: l.Position(next),
		Msg: "the broker cannot deliver what comes next", Err: err,
		Fix: fmt.Sprintf("repair the partition, or go on behind it: freshet progress set %s '%s=OFFSET'", table, l)}
}

func remadeError(topic, was, is string) error {
	msg := fmt.Sprintf("the topic was deleted and made again: its id was %s and is %s", was, is)
	fix := "read it under another app or into another table, or forget the old one: freshet progress set"
	if is == "" {
		msg = fmt.Sprintf("the topic with the id %s was deleted", was)
		fix = "take it out of the pipeline, or make it again and forget the old one: freshet progress set"
	}
	return &freshet.Error{Code: freshet.CodeOriginChanged, Class: freshet.ClassInput, Place: topic, Msg: msg,
		Fix: fix}
}

func (s *Source) forgottenError(table string, l freshet.Lane, committed int64) error {
	return &freshet.Error{Code: freshet.CodeForgotten, Class: freshet.ClassInput, Place: l.String(),
		Msg: fmt.Sprintf("the consumer group %q has read up to offset %d, but the table %s knows nothing of it:"+
			" it was made anew, or is another one", s.o.Group, committed-1, table),
		Fix: fmt.Sprintf("to go on there: freshet progress set %s '%s=%d'; to start as if new: choose another group,"+
			" or set forget_group: true (flag --forget-group) for one run", table, l, committed-1)}
}

// unknownError is for a lane that the table knew when we took it on.
func unknownError(table string, l freshet.Lane) error {
	return &freshet.Error{Code: freshet.CodeForgotten, Class: freshet.ClassInput, Place: l.String(),
		Msg: fmt.Sprintf("the table %s has forgotten how far it is: it was made anew while we wrote to it", table),
		Fix: "start again once the table is what it should be"}
}

func outsideError(l freshet.Lane, offset, first, end int64) error {
	return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: l.String(),
		Msg: fmt.Sprintf("start: found offset %d, wanted one from %d to %d, which is what the log holds",
			offset, first, end),
		Fix: "choose an offset that is there, or start at earliest"}
}

func noPartitionError(t topic, n int32) error {
	return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput,
		Place: fmt.Sprintf("%s[%d]", t.name, n),
		Msg: fmt.Sprintf("start: found an offset for partition %d, but the topic has the partitions 0 to %d", n,
			len(t.leaders)-1),
		Fix: "take the partition out of the start's offsets"}
}

func nothingError(table string, records int) error {
	return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: table,
		Msg: fmt.Sprintf("the table does not exist, and none of the first %d records can be decoded to tell its"+
			" columns", records),
		Fix: "check the source's format, or give the schema"}
}
