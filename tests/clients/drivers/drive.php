<?php
// Calls what a client defines, as told on standard input: a verb, an order, and mostly a deadline in milliseconds.

require $argv[1];

date_default_timezone_set(getenv('TZ'));
$url = parse_url(getenv('DATABASE_URL'));
$redis = parse_url(getenv('REDIS_URL'));
$dsn = "mysql:host={$url['host']};port={$url['port']};dbname=" . ltrim($url['path'], '/');
$client = isset($argv[2]) ? require $argv[2] : new Orders(new PDO($dsn, $url['user']), $redis['host'], $redis['port']);
while (($line = fgets(STDIN)) !== false) {
    [$verb, $order, $millis] = explode(' ', trim($line) . ' ');
    $arguments = [(int) $order];
    if ($millis !== '') {
        $moment = sprintf('%d.%03d', intdiv((int) $millis, 1000), (int) $millis % 1000);
        $arguments[] = DateTimeImmutable::createFromFormat('U.v', $moment)->setTimezone(new DateTimeZone(getenv('TZ')));
    }
    try {
        $answer = $client->$verb(...$arguments);
        echo '= ', $answer === null ? 'done' : json_encode($answer);
    } catch (Throwable $error) {
        echo '= failed: ', $error->getMessage();
    }
    echo "\n";
}
