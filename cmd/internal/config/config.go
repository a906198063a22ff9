package config

import (
	"fmt"
	"time"
)

// Bytes is a size in bytes; in the file a number, or a number with KiB, MiB or
// GiB behind it.
type Bytes int64

// Secret is text that never shows in a log or an error.
type Secret string

// String hides the secret.
func (Secret) String() string { return "[redacted]" }

// GoString hides the secret from %#v too.
func (Secret) GoString() string { return "[redacted]" }

// Reveal returns the clear text.
func (s Secret) Reveal() string { return string(s) }

// Config is the whole configuration. The tags are the reference: doc says what
// a key does, default, min and max are enforced by Load, unit is for people.
type Config struct {
	Cluster string   `yaml:"cluster" doc:"name of the cluster; part of every stream's name: letters, digits, - and _" required:"true"`
	DataDir string   `yaml:"data_dir" doc:"folder for the index and the embedded NATS server" default:"./tidegate-data"`
	Servers []Server `yaml:"servers" doc:"the MySQL servers of the cluster; roles are discovered" required:"true"`
	NATS    NATS     `yaml:"nats" doc:"where the streams live"`
	Listen  Listen   `yaml:"listen" doc:"where the router answers"`
	Auth    Auth     `yaml:"auth" doc:"who may ask; required when a listener is not on loopback"`

	Keys map[string][]string `yaml:"keys" doc:"group columns by schema.table: values of these columns are recorded as group keys"`

	Confirm Confirm `yaml:"confirm" doc:"how servers are probed"`
	Tail    Tail    `yaml:"tail" doc:"how binlogs are followed"`
	Router  Router  `yaml:"router" doc:"how decisions are made"`
	Index   Index   `yaml:"index" doc:"what the router remembers"`
	Budget  Budget  `yaml:"primary_budget" doc:"what may fall back to the primary"`
	Canary  Canary  `yaml:"canary" doc:"checking yes answers against the rows themselves"`
	Log     Log     `yaml:"log" doc:"logging, on standard error"`
}

// Server is one mysqld.
type Server struct {
	Name         string `yaml:"name" doc:"the server's name in answers, letters, digits, - and _" required:"true"`
	Addr         string `yaml:"addr" doc:"host:port that Tidegate connects to, or the path of a Unix socket (then app_addr is needed): the cheapest for the server, where its tailer runs beside it" required:"true"`
	User         string `yaml:"user" doc:"MySQL account" default:"tidegate"`
	Password     Secret `yaml:"password" doc:"its password; better password_file or ${VARIABLE}"`
	PasswordFile string `yaml:"password_file" doc:"file with the password; a trailing newline is dropped"`
	AppAddr      string `yaml:"app_addr" doc:"host:port (or path of a Unix socket) that applications use, given back in answers; empty: addr"`
	Weight       int    `yaml:"weight" doc:"share of reads among replicas that may serve; 0: route never chooses it" default:"1" min:"0" max:"1000"`
	Follow       string `yaml:"follow" doc:"binlog: read its binlog (needs log_bin and log_replica_updates); executed: positions only, for a replica without binlog" default:"binlog" oneof:"binlog executed"`
	TLS          TLS    `yaml:"tls" doc:"TLS to this server"`
}

// TLS is the client's side of a TLS connection.
type TLS struct {
	Enabled    bool   `yaml:"enabled" doc:"use TLS" default:"false"`
	CAFile     string `yaml:"ca_file" doc:"PEM file of the authorities trusted; empty: the system's"`
	CertFile   string `yaml:"cert_file" doc:"PEM file of a client certificate"`
	KeyFile    string `yaml:"key_file" doc:"PEM file of its key"`
	ServerName string `yaml:"server_name" doc:"name expected in the server's certificate; empty: the host"`
	Verify     string `yaml:"verify" doc:"full: the certificate must come from a trusted authority and name the server; ca: from the authority in ca_file, whatever it names (certificates that mysqld makes itself name nothing)" default:"full" oneof:"full ca"`
}

// NATS says where the streams live.
type NATS struct {
	URL       string        `yaml:"url" doc:"NATS servers, comma separated; empty: a server inside this process"`
	User      string        `yaml:"user" doc:"NATS user"`
	Password  Secret        `yaml:"password" doc:"NATS password"`
	CredsFile string        `yaml:"creds_file" doc:"NATS credentials file"`
	TLS       TLS           `yaml:"tls" doc:"TLS to NATS"`
	Replicas  int           `yaml:"replicas" doc:"copies of each stream, 1 or 3" default:"1" min:"1" max:"3"`
	MaxAge    time.Duration `yaml:"max_age" doc:"how long WRITES keeps messages; what is older is below the horizon" default:"24h" min:"1m" max:"8760h"`
	MaxBytes  Bytes         `yaml:"max_bytes" doc:"how large WRITES may grow" default:"2GiB" min:"16777216"`
}

// Listen says where the router answers.
type Listen struct {
	HTTP    string    `yaml:"http" doc:"host:port of the HTTP API; \"off\": none" default:"127.0.0.1:7400"`
	RESP    string    `yaml:"resp" doc:"host:port of the Redis protocol; \"off\": none" default:"127.0.0.1:7401"`
	Pprof   string    `yaml:"pprof" doc:"loopback host:port of /debug/pprof; empty: none"`
	Metrics string    `yaml:"metrics" doc:"loopback host:port that serves /metrics alone, without auth or TLS; tail has no other for them; empty: none"`
	TLS     ListenTLS `yaml:"tls" doc:"TLS of both listeners"`
	MaxConn int       `yaml:"max_connections" doc:"connections for each listener" default:"10000" min:"1" max:"1000000"`
}

// ListenTLS is the server's side of TLS.
type ListenTLS struct {
	CertFile     string `yaml:"cert_file" doc:"PEM file of the certificate; empty: no TLS"`
	KeyFile      string `yaml:"key_file" doc:"PEM file of its key"`
	ClientCAFile string `yaml:"client_ca_file" doc:"PEM file of authorities whose client certificates are accepted in place of a token (mTLS); auth.clients says whose may do what"`
}

// Auth lists who may ask.
type Auth struct {
	Tokens  []Token  `yaml:"tokens" doc:"bearer tokens (HTTP) and AUTH passwords (RESP)"`
	Clients []Client `yaml:"clients" doc:"names in client certificates (mTLS): who shows one needs no token"`
}

// Token is one bearer token.
type Token struct {
	Name      string   `yaml:"name" doc:"who it is, for logs" required:"true"`
	Token     Secret   `yaml:"token" doc:"the token; better token_file or ${VARIABLE}"`
	TokenFile string   `yaml:"token_file" doc:"file with the token"`
	Roles     []string `yaml:"roles" doc:"of read, write-session, operate, rows" required:"true"`
}

// Client is one client certificate.
type Client struct {
	Name  string   `yaml:"name" doc:"common name, or a DNS name, of the certificate" required:"true"`
	Roles []string `yaml:"roles" doc:"of read, write-session, operate, rows" required:"true"`
}

// Confirm says how servers are probed.
type Confirm struct {
	MinInterval  time.Duration `yaml:"min_interval" doc:"least time between two probes of a server" default:"1ms" min:"100us" max:"1s"`
	ProbeTimeout time.Duration `yaml:"probe_timeout" doc:"a probe that takes longer ends the connection, and with it the lease" default:"2s" min:"10ms" max:"1m"`
}

// Tail says how binlogs are followed.
type Tail struct {
	KeyCap          int           `yaml:"key_cap" doc:"keys of one transaction that are recorded singly; beyond it all rows of each table" default:"100000" min:"16" max:"10000000"`
	Heartbeat       time.Duration `yaml:"heartbeat" doc:"how often an idle server is asked to send a heartbeat" default:"1s" min:"100ms" max:"1m"`
	ReadTimeout     time.Duration `yaml:"read_timeout" doc:"silence after which the connection counts as lost; more than two heartbeats" default:"5s" min:"300ms" max:"10m"`
	BusyPause       time.Duration `yaml:"busy_pause" doc:"time between two looks at a binlog that brings something at nearly every look: less processor time, and as much later; 0: read as it comes" default:"4ms" min:"0s" max:"100ms"`
	CheckpointEvery time.Duration `yaml:"checkpoint_every" doc:"longest time between two checkpoints in WRITES" default:"1m" min:"1s" max:"24h"`
}

// Router says how decisions are made.
type Router struct {
	Tick            time.Duration `yaml:"tick" doc:"how often the router sends its tick; bounds how fresh a watermark can be" default:"50ms" min:"5ms" max:"10s"`
	Lease           time.Duration `yaml:"lease" doc:"how old the newest tick named by a server may be; shorter than the quickest rebuild under the same UUID" default:"3s" min:"50ms" max:"5m"`
	WatermarkMaxAge time.Duration `yaml:"watermark_max_age" doc:"how old the watermark may be at level key" default:"1s" min:"20ms" max:"5m"`
	Choice          string        `yaml:"choice" doc:"balanced: the less loaded of two random replicas; freshest: the least stale" default:"balanced" oneof:"balanced freshest"`
	ProbeWait       time.Duration `yaml:"probe_wait" doc:"how long route waits for the primary's next probe when the primary lacks part of a floor" default:"200ms" min:"1ms" max:"10s"`
}

// Index bounds what the router remembers.
type Index struct {
	MaxRecords   int           `yaml:"max_records" doc:"records kept in memory (about 32 bytes each); the oldest are evicted into the horizon" default:"4000000" min:"1024" max:"2000000000"`
	PersistEvery time.Duration `yaml:"persist_every" doc:"how often the index is written to data_dir, for a warm restart" default:"1s" min:"10ms" max:"1h"`
}

// Budget bounds what may fall back to the primary.
type Budget struct {
	ReadsPerSecond int `yaml:"reads_per_s" doc:"fallback reads a second that this router may send to the primary; 0: none" default:"1000" min:"0" max:"10000000"`
}

// Canary says how often a yes is checked against the rows.
type Canary struct {
	OneIn     int `yaml:"one_in" doc:"one in so many yes answers is checked; 0: none" default:"10000" min:"0"`
	PerSecond int `yaml:"per_s" doc:"at most so many checks a second" default:"3" min:"0" max:"1000"`
}

// Log says what is logged.
type Log struct {
	Level  string `yaml:"level" doc:"least level that is logged" default:"info" oneof:"debug info warn error"`
	Format string `yaml:"format" doc:"text or json" default:"text" oneof:"text json"`
}

// crossChecks are the rules between keys, each with the key to blame.
func (c *Config) crossChecks(add func(path, message string)) {
	if !validName(c.Cluster) && c.Cluster != "" {
		add("cluster", fmt.Sprintf("%q may hold letters, digits, - and _ only, 64 at most", c.Cluster))
	}
	if c.DataDir == "" {
		add("data_dir", "is empty; name a folder, or leave the key out for the default")
	}
	c.checkServers(add)
	checkTLS("nats.tls", &c.NATS.TLS, add)
	c.checkNATS(add)
	if c.Tail.ReadTimeout <= 2*c.Tail.Heartbeat {
		add("tail.read_timeout", fmt.Sprintf("%v must be more than two heartbeats (tail.heartbeat is %v)", c.Tail.ReadTimeout, c.Tail.Heartbeat))
	}
	if c.Router.Lease <= 2*c.Router.Tick {
		add("router.lease", fmt.Sprintf("%v must be more than two ticks (router.tick is %v)", c.Router.Lease, c.Router.Tick))
	}
	if c.Router.WatermarkMaxAge <= 2*c.Router.Tick {
		add("router.watermark_max_age", fmt.Sprintf("%v must be more than two ticks (router.tick is %v)", c.Router.WatermarkMaxAge, c.Router.Tick))
	}
	c.checkListen(add)
	c.checkAuth(add)
	for table, columns := range c.Keys {
		checkGroupColumns(table, columns, add)
	}
}
