#!/usr/bin/perl
# A regatta worker from docs/PROTOCOL.md alone: attention forward in float32, in doubles inside.
use strict; use warnings; use JSON::PP; use IO::Handle; use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
open(my $in, '<&=', 3) or die "descriptor 3: $!"; open(my $out, '>&=', 4) or die "descriptor 4: $!";
$out->autoflush(1); my ($problem, $tensors, $case);
sub element {    # SplitMix64; `use integer` wraps, plain `>>` is logical
    my ($seed, $tensor, $index) = @_; my $z;
    { use integer; $z = $seed + (($tensor << 40) + $index + 1) * -7046029254386353131; }
    { my $x = $z ^ ($z >> 30); use integer; $z = $x * -4658895280553007687; }
    { my $x = $z ^ ($z >> 27); use integer; $z = $x * -7723592293110705685; }
    $z ^= $z >> 31; return unpack 'f', pack 'f', (2 * (($z >> 11) / 2**53) - 1) * sqrt 3;
}
sub now { return 1e9 * clock_gettime(CLOCK_MONOTONIC) }
sub fill { my ($seed, $t, $n) = @_; return [map { element($seed, $t, $_) } 0 .. $n - 1] }
sub attend {     # tensors in logical order [batch, seq, heads, head_dim]
    my ($p, $q, $k, $v) = @_; my @out;
    my ($d, $dv, $h, $kv) = @$p{qw(head_dim head_dim_v heads kv_heads)};
    my $offset = $p->{mask}{align} eq 'bottom-right' ? $p->{seq_k} - $p->{seq_q} : 0;
    for my $b (0 .. $p->{batch} - 1) { for my $i (0 .. $p->{seq_q} - 1) { for my $head (0 .. $h - 1) {
        my ($left, $right) = @{$p->{mask}}{qw(left right)}; my $sum = 0;
        my $first = defined $left ? $i + $offset - $left : 0; $first = 0 if $first < 0;
        my $last = defined $right ? $i + $offset + $right : $p->{seq_k} - 1;
        $last = $p->{seq_k} - 1 if $last >= $p->{seq_k};
        my $row = ($b * $p->{seq_q} + $i) * $h + $head; my @sum = (0) x $dv;
        for my $j ($first .. $last) {
            my $key = ($b * $p->{seq_k} + $j) * $kv + int($head / ($h / $kv)); my $dot = 0;
            $dot += $q->[$row * $d + $_] * $k->[$key * $d + $_] for 0 .. $d - 1;
            my $w = exp($dot / sqrt $d); $sum += $w; # unit variance: no overflow without the maximum
            $sum[$_] += $w * $v->[$key * $dv + $_] for 0 .. $dv - 1;
        } push @out, map { $sum ? $_ / $sum : 0 } @sum;
    } } } return \@out;
}
sub prepare {
    my ($r) = @_; my $p = $r->{problem}; $problem = undef;
    return {type => 'failed', reason => "no variant $r->{variant}"} if $r->{variant} ne 'naive';
    return {type => 'unsupported', reason => "$p->{dtype} $p->{direction}: f32 forward only"}
        if $p->{dtype} ne 'f32' or $p->{direction} ne 'forward' or $p->{varlen};
    $case = $r; change($p, $r->{seed}); my $start = now(); my $o = attend($p, @$tensors);
    my $took = now() - $start; $problem = $p; return {type => 'prepared', first_call_ns => $took, found($o)};
}
sub change { my ($p, $seed) = @_;    # the inputs of a seed, in the place of those that were there
    my ($nq, $nk) = ($p->{batch} * $p->{seq_q}, $p->{batch} * $p->{seq_k} * $p->{kv_heads});
    $tensors = [fill($seed, 0, $nq * $p->{heads} * $p->{head_dim}),
        fill($seed, 1, $nk * $p->{head_dim}), fill($seed, 2, $nk * $p->{head_dim_v})];
}
sub found {      # it is in doubles and its own reference: only the probes say something
    my ($o) = @_; return (errors => {out => {relative_l2 => 0, max_abs => 0}},
        probes => {out => [map { $o->[int((2 * $_ + 1) * @$o / 32)] } 0 .. 15]});
}
sub measure {
    my ($r) = @_; return {type => 'failed', reason => 'nothing is prepared'} if !$problem;
    attend($problem, @$tensors) for 1 .. $r->{warmup}; my ($spent, $last, $o, @ns) = (0);
    my ($seed, $sets) = ($case->{seed}, $case->{input_sets} // 1);
    until ($last) {    # fresh inputs for each sample, those of seed + 1 for the last one
        my $after = $spent + (@ns ? $spent / @ns : 0);
        $last = @ns + 1 >= $r->{samples} || (@ns + 1 >= $r->{min_samples} && $after >= 1e6 * $r->{budget_ms});
        change($problem, $seed + ($last ? 1 : @ns + 2)) if $sets > 1;
        my $start = now(); $o = attend($problem, @$tensors); push @ns, now() - $start; $spent += $ns[-1]; }
    return {type => 'measured', device_ns => \@ns,
        $sets > 1 ? (input_sets => @ns + 1, checked => {seed => $seed + 1, found($o)}) : ()};
}
my %answers = (prepare => \&prepare, measure => \&measure, census => sub { {type => 'census'} },
    release => sub { $problem = undef; {type => 'released'} }, shutdown => sub { {type => 'bye'} },
    hello => sub { {type => 'hello', protocol => 1, worker => 'perl', versions => {perl => "$^V"},
        device => {kind => 'cpu', name => 'cpu', memory_bytes => 1000000000},
        variants => [{name => 'naive', dtypes => ['f32'], directions => ['forward']}]} });
while (my $line = <$in>) {
    my $r = decode_json($line); my $reply = $answers{$r->{type}}->($r);
    print $out encode_json({%$reply, id => $r->{id}}), "\n"; last if $r->{type} eq 'shutdown';
}
