<?php
// As much of Laravel as the client uses, on the database and the Redis that the test has started.

use Illuminate\Container\Container;
use Illuminate\Database\Capsule\Manager;
use Illuminate\Database\DatabaseTransactionsManager;
use Illuminate\Redis\RedisManager;
use Illuminate\Support\Facades\Facade;

require '/usr/share/php/Illuminate/Database/autoload.php';
require '/usr/share/php/Illuminate/Redis/autoload.php';

$container = new Container();
$database = new Manager($container);
$database->addConnection([
    'driver' => 'mysql', 'host' => $url['host'], 'port' => $url['port'], 'username' => $url['user'], 'password' => '',
    'database' => ltrim($url['path'], '/'),
]);
$database->getConnection()->setTransactionManager(new DatabaseTransactionsManager());
$container->instance('db', $database->getDatabaseManager());
$timeouts = ['timeout' => 0.5, 'read_timeout' => 0.5];
$container->instance('redis', new RedisManager($container, 'phpredis', [
    'options' => ['prefix' => 'laravel_database_'],
    'orders' => ['host' => $redis['host'], 'port' => $redis['port']] + $timeouts,
]));
$container->instance('log', new class {
    public function warning(string $message): void
    {
        error_log($message);
    }
});
Facade::setFacadeApplication($container);
return new Orders();
